// SPDX-License-Identifier: MIT
// The endpoint without HTTP: what is known of a request, the queue of work, the worker threads that
// decode, call the handler and seal, and the timer. Internal to the endpoint.
//
// Life of a request (E = event loop, W = worker, A = any thread):
//
//   E receiving ──end of body──▶ E suspended ──▶ W decode, handler ──▶ (waits, no thread)
//        │ bad, too large                                                │ A send()/timer/stop
//        ▼                                                               ▼
//   E refused                          E responding ◀──resume── W seal the answer's text
//
// An answer is turned into text, and counted in the budget, by whoever gives it: what waits for a
// worker is bounded like all the rest.
//
// Lock order: Core::mutex before Request::mutex; neither is held while calling out (handler, auth,
// MHD_resume_connection).
#pragma once

#include <microhttpd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "protocol/byte_budget.h"
#include "protocol/endpoint_server.h"
#include "protocol/replay_guard.h"

namespace flextrain::protocol::endpoint {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// A TCP connection, for the limit on slow peers. Guarded by Core::mutex.
struct Connection {
  int fd = -1;
  Clock::time_point since;  // start of the present phase
  bool waiting = false;     // suspended: the wait is ours, not the peer's
};

struct Request {
  // Event loop only:
  std::string type;  // from the URL
  bool dispatched = false;
  bool answered_at_once = false;  // refused, or a page
  Connection* connection_entry = nullptr;
  // Set before dispatch, constant afterwards:
  MHD_Connection* connection = nullptr;
  std::string body;
  Caller caller;
  // Whoever holds the body or the response holds its bytes:
  ByteBudget::Share body_share, response_share;

  std::mutex mutex;
  bool decoded = false;  // version, nonce and the caller's ids are known, constant from here
  int version = kProtocolVersion;
  std::string nonce;
  bool answered = false;  // somebody won the right to answer
  bool finished = false;  // http_status and http_body are set, the connection is resumed
  unsigned http_status = 0;
  std::string http_body;
  Clock::time_point received;
  std::optional<std::string> timeout_text;  // the answer when its timer is due
  uint64_t timer_generation = 0;
};
using RequestPtr = std::shared_ptr<Request>;

struct Task {
  RequestPtr request;
  std::optional<std::string> answer;  // set: seal and send it; else: decode and call the handler
};

struct Timer {
  RequestPtr request;
  uint64_t generation = 0;
};

struct Core : std::enable_shared_from_this<Core> {
  Core(const EndpointOptions& endpoint_options, std::shared_ptr<Authenticator> authenticator,
       Handler request_handler);
  ~Core();

  EndpointOptions options;
  const std::shared_ptr<Authenticator> auth;
  const Clock::time_point started = Clock::now();
  const Handler handler;
  ByteBudget budget;
  ReplayGuard replays;

  mutable std::mutex mutex;
  std::condition_variable work, timer, idle;
  bool stopping = false;
  // Queries of people, whose answers may be large, come after the messages of agents and never
  // occupy every worker.
  std::deque<Task> tasks, queries;
  int queries_running = 0;
  std::multimap<Clock::time_point, Timer> timers;
  std::set<RequestPtr> suspended;  // from suspend until the event loop sees them again
  std::set<Connection*> connections;
  // For the event loop, which looks after wake_loop(). False: it is to stop that.
  std::atomic<bool> listening{true}, looping{true};
  const int wake_fd;  // eventfd(2); -1 where there was none to have
  int handlers_running = 0, workers_running = 0;
  Clock::time_point refusals_told;  // when the log last heard of refused credentials
  int64_t refusals_untold = 0;

  std::atomic<int64_t> requests{0}, refused{0}, timed_out{0};

  void enqueue(Task task);  // with `mutex` held
  void wake_loop() const;
  // Gives the HTTP answer to the event loop. Only the first call per request has an effect.
  void finish(const RequestPtr& request, unsigned status, std::string body);
  bool answer(const RequestPtr& request, Envelope response);
  void set_timer(const RequestPtr& request, milliseconds timeout, Envelope response);
  void run_worker();
  void run_timer();
  // Ends every connection (`how` as for shutdown(2)); false when some are left after `limit`.
  bool drain_connections(int how, milliseconds limit);

 private:
  void decode_and_handle(const RequestPtr& request);
  void call_handler(const Envelope& envelope, const RequestPtr& request, const ReplyPtr& reply);
  std::string answer_text(const RequestPtr& request, Envelope& response) const;
  // The caller has won the right to answer. False when stop() came first.
  bool accept_answer(const RequestPtr& request, Envelope response);
  void seal_and_finish(const RequestPtr& request, std::string text);
  void tell_refusal(const Request& request, const Status& why);
  std::deque<Task>* next_queue();
  void answer_due(Clock::time_point now);
  std::vector<RequestPtr> forgotten(Clock::time_point now);
  void cut_slow(Clock::time_point now) const;
};

}  // namespace flextrain::protocol::endpoint
