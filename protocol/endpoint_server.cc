// SPDX-License-Identifier: MIT
// Starting and stopping the endpoint. Requests: endpoint_core.h; HTTP: endpoint_http.h.
#include "protocol/endpoint_server.h"

#include <microhttpd.h>
#include <pthread.h>
#include <sys/socket.h>

#include <csignal>
#include <mutex>
#include <thread>
#include <vector>

#include "base/log.h"
#include "protocol/endpoint_core.h"
#include "protocol/endpoint_http.h"

namespace flextrain::protocol {
namespace {

using endpoint::Core;
using endpoint::RequestPtr;
using std::chrono::milliseconds;

class SignalBlock {  // threads made inside it inherit a full mask
 public:
  SignalBlock() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old_);
  }
  ~SignalBlock() { pthread_sigmask(SIG_SETMASK, &old_, nullptr); }

 private:
  sigset_t old_;
};

class EndpointServerImpl final : public EndpointServer {
 public:
  EndpointServerImpl(const EndpointOptions& options, std::shared_ptr<Authenticator> auth,
                     Handler handler)
      : core_(std::make_shared<Core>(options, std::move(auth), std::move(handler))) {}
  ~EndpointServerImpl() override { stop(); }

  Status start_all();
  int port() const override { return port_; }
  void stop() override;
  Statistics statistics() const override {
    const std::lock_guard lock(core_->mutex);
    return {core_->requests.load(),
            core_->refused.load(),
            core_->timed_out.load(),
            static_cast<int>(core_->connections.size()),
            static_cast<int>(core_->suspended.size()),
            core_->budget.used()};
  }

 private:
  void stop_event_loop();

  const std::shared_ptr<Core> core_;
  std::mutex stop_mutex_;
  bool stopped_ = false;
  MHD_Daemon* daemon_ = nullptr;
  int port_ = 0;
  std::vector<std::thread> workers_;
  std::thread timer_, loop_;
};

Status EndpointServerImpl::start_all() {
  if (core_->wake_fd < 0) return unavailable("no file descriptor is left for the endpoint");
  const SignalBlock block;
  ASSIGN_OR_RETURN(daemon_, endpoint::start_daemon(*core_));
  port_ = endpoint::port_of(daemon_);
  const EndpointOptions& options = core_->options;
  try {
    core_->workers_running = options.page ? 0 : std::max(1, options.workers);
    for (int i = 0; i < core_->workers_running; ++i) {
      workers_.emplace_back([core = core_] {
        ::pthread_setname_np(::pthread_self(), "fx-endpoint");  // what `top -H` shows
        core->run_worker();
      });
    }
    timer_ = std::thread([core = core_] {
      ::pthread_setname_np(::pthread_self(), "fx-endpt-timer");
      core->run_timer();
    });
    loop_ = std::thread([core = core_, daemon = daemon_] {
      ::pthread_setname_np(::pthread_self(), "fx-endpt-loop");
      endpoint::run_event_loop(*core, daemon);
    });
  } catch (const std::exception& error) {
    core_->workers_running = static_cast<int>(workers_.size());
    return unavailable("cannot start the endpoint's threads: {}", error.what());
  }
  return {};
}

void EndpointServerImpl::stop_event_loop() {
  if (daemon_ == nullptr) return;
  std::vector<RequestPtr> waiting;
  {
    const std::lock_guard lock(core_->mutex);
    waiting.assign(core_->suspended.begin(), core_->suspended.end());
  }
  for (const RequestPtr& request : waiting) {
    core_->finish(request, MHD_HTTP_SERVICE_UNAVAILABLE, "");
  }
  core_->listening = false;
  core_->wake_loop();
  std::unique_lock lock(core_->mutex);
  const bool all_resumed = core_->idle.wait_for(lock, core_->options.stop_timeout,
                                                [&] { return core_->suspended.empty(); });
  lock.unlock();
  // First what is read ends, so that the answers above still go out, then all. What is left then is
  // closed with the daemon: nothing is served any more.
  const milliseconds patience = core_->options.stop_timeout / 2;
  if (loop_.joinable() && !core_->drain_connections(SHUT_RD, patience)) {
    core_->drain_connections(SHUT_RDWR, patience);
  }
  core_->looping = false;
  core_->wake_loop();
  if (loop_.joinable()) loop_.join();
  if (all_resumed) {
    MHD_stop_daemon(daemon_);
  } else {  // over a suspended connection libmicrohttpd would abort the process
    log_error("endpoint: requests did not come back; its connections are left behind");
    static std::vector<std::shared_ptr<Core>>* leaked = new std::vector<std::shared_ptr<Core>>();
    leaked->push_back(core_);
  }
  daemon_ = nullptr;
}

void EndpointServerImpl::stop() {
  const std::lock_guard stop_lock(stop_mutex_);
  if (stopped_) return;
  stopped_ = true;
  {
    std::unique_lock lock(core_->mutex);
    core_->stopping = true;
    core_->work.notify_all();
    core_->timer.notify_all();
    core_->idle.wait(lock, [&] { return core_->handlers_running == 0; });
  }
  stop_event_loop();
  bool workers_done = false;
  {
    std::unique_lock lock(core_->mutex);
    workers_done = core_->idle.wait_for(lock, core_->options.stop_timeout,
                                        [&] { return core_->workers_running == 0; });
    core_->tasks.clear();
    core_->queries.clear();
    core_->timers.clear();
  }
  for (std::thread& worker : workers_) {
    // One stuck in munge keeps the Core alive and touches nothing else.
    workers_done ? worker.join() : worker.detach();
  }
  if (timer_.joinable()) timer_.join();
}

}  // namespace

Envelope error_response(std::string error) {
  Envelope response;
  response.error = std::move(error);
  return response;
}

Result<std::unique_ptr<EndpointServer>> EndpointServer::start(const EndpointOptions& options,
                                                              std::shared_ptr<Authenticator> auth,
                                                              Handler handler) {
  auto server = std::make_unique<EndpointServerImpl>(options, std::move(auth), std::move(handler));
  RETURN_IF_ERROR(server->start_all());
  return std::unique_ptr<EndpointServer>(std::move(server));
}

}  // namespace flextrain::protocol
