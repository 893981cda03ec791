// SPDX-License-Identifier: MIT
#include "agent/companion.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>

#include "base/log.h"
#include "protocol/client.h"
#include "protocol/discovery.h"

namespace flextrain::agent {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kNoticeTries = 5;
constexpr milliseconds kNoticePause{500};

// Tells the base agent on a thread of its own; it answers when its trainer has left this node.
class Notice {
 public:
  ~Notice() {
    if (client_) client_->cancel();
    if (thread_.joinable()) thread_.join();
  }

  Status start(const CompanionOptions& options, std::string reason) {
    if (options.notice_address.empty()) return not_found("the base agent's address is not known");
    protocol::ClientOptions client;
    ASSIGN_OR_RETURN(client.hosts, protocol::parse_host_list(options.notice_address, 0));
    client.controller_uid = ::getuid();  // the base agent is the same user's
    client.timeout = options.notice_timeout;
    ASSIGN_OR_RETURN(client_, protocol::make_client(std::move(client), options.auth));
    protocol::NoticeRequest request{options.job.job_id, std::move(reason)};
    thread_ = std::thread([this, request, job = options.job] {
      Status status;
      for (int i = 0; i < kNoticeTries; ++i) {
        status = client_->call(protocol::make_request(protocol::kNotice, job, 0, request)).status();
        if (status.ok() || status.code() == StatusCode::kAborted) break;
        std::this_thread::sleep_for(kNoticePause);
      }
      failed_ = !status.ok();
      if (!status.ok()) log_warning("cannot tell the base agent: {}", status.message());
      done_ = true;
    });
    return {};
  }
  bool done() const { return done_; }
  bool failed() const { return failed_; }

 private:
  std::unique_ptr<protocol::Client> client_;
  std::thread thread_;
  std::atomic<bool> done_{false}, failed_{false};
};

}  // namespace

int run_companion(const CompanionOptions& options, ControllerLink& link, EventQueue& events) {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGUSR1, SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, number);
  const int signal_fd = ::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  if (signal_fd < 0 || events.fd() < 0) {
    log_error("cannot watch for signals: {}", std::strerror(errno));
    return 1;
  }
  const Clock::time_point begin = Clock::now();
  std::chrono::seconds lease = options.first_lease;
  std::unique_ptr<Notice> notice;
  int code = -1;
  std::string reason;
  const auto leave = [&](int exit_code, std::string why) {
    if (code >= 0) return;
    code = exit_code;
    reason = std::move(why);
  };
  while (code < 0) {
    pollfd fds[2] = {{signal_fd, POLLIN, 0}, {events.fd(), POLLIN, 0}};
    ::poll(fds, 2, 100);
    signalfd_siginfo info{};
    while (::read(signal_fd, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
      if (notice != nullptr) continue;  // a second one changes nothing
      const std::string text =
          fmt::format("signal {}", strsignal(static_cast<int>(info.ssi_signo)));
      log_info("{}: asking the base agent to leave this node", text);
      notice = std::make_unique<Notice>();
      if (const Status status = notice->start(options, text); !status.ok()) {
        leave(0, fmt::format("{}; {}", text, status.message()));
      }
    }
    for (const Event& event : events.take_all()) {
      if (event.kind == Event::Kind::kRegistered) {
        if (!event.registered.elastic) {
          leave(1, fmt::format("the controller has no use for this companion: {}",
                               event.registered.reason));
        }
        if (event.registered.lease_seconds > 0) {
          lease = std::chrono::seconds(event.registered.lease_seconds);
        }
      } else if (event.kind == Event::Kind::kOrder &&
                 event.order.kind == protocol::OrderKind::kRelease) {
        leave(0, "released by the controller");
      }
    }
    if (notice != nullptr && notice->done()) {
      leave(0, notice->failed() ? "called back by Slurm; the base agent could not be told"
                                : "called back by Slurm; the trainer has left");
    }
    if (Clock::now() - std::max(begin, link.last_heard()) > lease) {
      leave(1,
            fmt::format("no word of the controller for {} s, the lease has passed", lease.count()));
    }
  }
  ::close(signal_fd);
  notice.reset();
  log_info("companion leaves: {}", reason);
  link.stop({code, reason}, milliseconds(2000));
  return code;
}

}  // namespace flextrain::agent
