// SPDX-License-Identifier: MIT
// The agent's conversation with the controller, on two threads of its own: one registers and polls
// for orders, one sends what the supervisor hands over. Nothing here blocks the supervisor.
//
//   ┌────────┐ found  ┌─────────────┐ elastic  ┌─────────┐ order ─▶ EventQueue
//   │ locate │───────▶│ registering │─────────▶│ polling │
//   └────────┘        └─────────────┘          └─────────┘
//        ▲  every failure: back-off with jitter     │ newer epoch, or "register first"
//        └──────────────────────────────────────────┴──▶ registering
//
// A response of an older epoch than the newest seen is refused.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "agent/event_queue.h"
#include "protocol/auth.h"
#include "protocol/client.h"
#include "protocol/discovery.h"
#include "protocol/messages.h"

namespace flextrain::agent {

struct LinkOptions {
  protocol::JobIdentity job;
  // Completes `job` where its submit time was not known at the start (slurmctld was away).
  std::function<Result<protocol::JobIdentity>()> identify;
  std::shared_ptr<protocol::Authenticator> auth;
  std::function<Result<protocol::ControllerLocation>()> locate;
  int64_t epoch = 0, last_sequence = 0;  // from a former agent of this run
  std::chrono::milliseconds first_retry{500}, last_retry{30'000};
  std::chrono::milliseconds progress_interval{2'000};  // at most one progress message per interval
  std::chrono::milliseconds elastic_retry{60'000};     // after "not elastic", or a refusal
};

// Thread-safe.
class ControllerLink {
 public:
  ControllerLink(LinkOptions options, protocol::RegisterRequest registration, EventQueue& events);
  ~ControllerLink();

  void start();
  // Registers anew with changed content (a fingerprint that became known).
  void set_registration(protocol::RegisterRequest registration);
  void set_progress(protocol::ProgressRequest progress);    // the newest wins
  void set_scale_table(protocol::ScaleTableRequest table);  // again after each new epoch
  void report(protocol::ReportRequest report);              // each is delivered, in order
  void set_executed(int64_t sequence);                      // what polls say from now on
  // Delivers what waits and says goodbye, within `limit`; then ends both threads.
  void stop(const protocol::ByeRequest& bye, std::chrono::milliseconds limit);
  // When the controller was last heard of; a fixed past moment before that.
  std::chrono::steady_clock::time_point last_heard() const;

 private:
  void run_poll();
  void run_send();
  Result<protocol::Envelope> call(protocol::Client& client, std::string_view type, Json body,
                                  std::chrono::milliseconds timeout);
  Status register_now(protocol::Client& client);
  Status poll_once(protocol::Client& client);
  void sleep_for(std::chrono::milliseconds time);
  Status connect(std::shared_ptr<protocol::Client>& slot);
  void complain(const Status& status);
  bool stopping() const;

  const LinkOptions options_;
  EventQueue& events_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  protocol::RegisterRequest registration_;
  uint64_t registration_version_ = 1, registered_version_ = 0;
  bool registered_ = false;  // with the present epoch
  bool elastic_ = false;
  int poll_seconds_ = 25;
  int64_t epoch_ = 0, executed_ = 0;
  std::optional<protocol::ProgressRequest> progress_;  // not told yet
  std::string told_state_;
  std::chrono::steady_clock::time_point told_progress_;
  std::chrono::seconds progress_pace_{0};  // the controller's wish
  std::optional<protocol::ScaleTableRequest> table_;
  int64_t table_epoch_ = -1;  // epoch it was delivered to
  std::deque<protocol::ReportRequest> reports_;
  std::optional<protocol::ByeRequest> bye_;
  bool bye_sent_ = false;
  bool stop_ = false;
  protocol::JobIdentity job_;
  std::string last_complaint_;
  std::chrono::steady_clock::time_point last_heard_;
  std::shared_ptr<protocol::Client> poll_client_, send_client_;
  std::thread poll_thread_, send_thread_;
};

}  // namespace flextrain::agent
