// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm_plugin/controller/controller.h"

#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "base/log.h"
#include "slurm_plugin/controller/controller_impl.h"
#include "slurm_plugin/controller/metrics_listener.h"

namespace flextrain::slurm_plugin {
namespace {

using std::chrono::milliseconds;

constexpr size_t kMaxQueuedMessages = 20000;
constexpr size_t kMaxQueuedQueries = 256;
// As JSON text; parsed, it is several times as large. A message always has room in an empty queue.
constexpr size_t kMaxQueuedBytes = size_t{32} << 20;
constexpr size_t kMaxQueryBytes = size_t{64} << 10;
constexpr milliseconds kMonitorEvery{250};
constexpr int64_t kClockJumpSeconds = 5;

int64_t system_clock_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}
int64_t steady_clock_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

void Controller::Impl::accept(const protocol::Envelope& request, const protocol::Caller& caller,
                              protocol::ReplyPtr reply) {
  if (stopping) {
    reply->send(protocol::error_response("the controller is stopping"));
    return;
  }
  const bool query = request.type == protocol::kQuery;
  {
    std::lock_guard lock(mutex);
    Messages& queue = query ? queries : messages;
    const bool room = query ? queue.size() < kMaxQueuedQueries && caller.bytes <= kMaxQueryBytes
                            : queue.empty() || (queue.size() < kMaxQueuedMessages &&
                                                messages_bytes + caller.bytes <= kMaxQueuedBytes);
    if (room) {
      queue.push_back({request, caller, std::move(reply)});
      if (!query) messages_bytes += caller.bytes;
      changed.notify_all();
      return;
    }
  }
  reply->send(protocol::error_response("the controller is overloaded: try again"));
}

// The thread keeps its own share of everything: a stop() that gives up waiting leaves nothing
// dangling.
void Controller::Impl::launch(void (Impl::*body)(), const char* name) {
  {
    std::lock_guard lock(mutex);
    ++running;
  }
  const auto ended = [](Impl& impl) {
    std::lock_guard lock(impl.mutex);
    --impl.running;
    impl.changed.notify_all();
  };
  try {
    threads.emplace_back([self = shared_from_this(), body, name, ended] {
      ::pthread_setname_np(::pthread_self(), name);  // what `top -H` shows
      try {
        ((*self).*body)();
      } catch (...) {
        log_error("a thread of the controller ended by a fault");
      }
      ended(*self);
    });
  } catch (...) {
    ended(*this);
    throw;
  }
}

void Controller::Impl::monitor() {
  std::unique_lock lock(mutex);
  MetricsListener listener(config.metrics_address, config.metrics_port);
  lock.unlock();
  // By how much the time of day is ahead of a clock that nobody sets.
  const auto offset = [&] {
    return dependencies.steady ? dependencies.clock() - dependencies.steady() : int64_t{0};
  };
  int64_t before = offset();
  lock.lock();
  while (!stopping) {
    changed.wait_for(lock, kMonitorEvery, [&] { return stopping.load(); });
    lock.unlock();
    watchdog.check();
    listener.turn(MetricsListener::Clock::now(), [&] { return metrics(); });
    metrics_port = listener.port();
    const int64_t now = offset();
    lock.lock();
    // Slurm ends leases by the new time within half a minute: renew them first.
    if (std::abs(now - before) >= kClockJumpSeconds) {
      woken = true;
      changed.notify_all();
    }
    before = now;
  }
  lock.unlock();
  listener.stop();
}

Result<std::unique_ptr<Controller>> Controller::create(const ControllerConfig& config,
                                                       ControllerDependencies dependencies) {
  if (!dependencies.make_cluster) return invalid_argument("a controller needs a cluster");
  if (config.database_path.empty() || config.database_path.front() != '/') {
    return invalid_argument("DatabasePath '{}' is not an absolute path", config.database_path);
  }
  if (dependencies.slurm_uid == 0) dependencies.slurm_uid = ::geteuid();  // slurmctld's own
  if (!dependencies.clock) {
    dependencies.clock = system_clock_seconds;
    dependencies.steady = steady_clock_seconds;
  }
  auto impl = std::make_shared<Impl>();
  impl->config = impl->active = config;
  impl->dependencies = std::move(dependencies);
  return std::unique_ptr<Controller>(new Controller(std::move(impl)));
}

Controller::Controller(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

Controller::~Controller() { stop(milliseconds(2000)); }

Status Controller::start() {
  {
    std::lock_guard lock(impl_->mutex);
    if (impl_->started) return failed_precondition("the controller was started before");
    impl_->started = true;
  }
  try {
    impl_->launch(&Impl::monitor, "fx-watchdog");
    impl_->launch(&Impl::answer_queries, "fx-queries");
    impl_->launch(&Impl::run, "fx-worker");
  } catch (const std::exception& error) {
    impl_->stopping = true;  // those that run end
    return resource_exhausted("no thread for the controller: {}", error.what());
  }
  return {};
}

bool Controller::stop(milliseconds deadline) {
  impl_->stopping = true;
  std::unique_lock lock(impl_->mutex);
  if (!impl_->started) return true;
  impl_->changed.notify_all();
  const bool ended = impl_->changed.wait_for(lock, deadline, [&] { return impl_->running == 0; });
  lock.unlock();
  if (!ended && !impl_->threads.empty()) {
    log_warning("a thread of the controller is still inside a call; it ends when that returns");
  }
  for (std::thread& thread : std::exchange(impl_->threads, {})) {
    if (ended) {
      thread.join();
    } else {
      thread.detach();
    }
  }
  return ended;
}

void Controller::wake() noexcept {
  try {
    std::lock_guard lock(impl_->mutex);
    impl_->woken = true;
    impl_->changed.notify_all();
  } catch (...) {
    // The next tick sees the job too.
  }
}

Status Controller::reconfigure(const ControllerConfig& config) {
  std::lock_guard lock(impl_->mutex);
  impl_->config = config;
  impl_->config_changed = true;
  impl_->changed.notify_all();
  return {};
}

int Controller::port() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->server ? impl_->server->port() : 0;
}

}  // namespace flextrain::slurm_plugin
