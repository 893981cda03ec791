// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm_plugin/controller/controller.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

#include "base/file.h"
#include "base/log.h"
#include "base/path.h"
#include "protocol/endpoint_server.h"
#include "slurm_plugin/controller/engine.h"
#include "slurm_plugin/controller/guarded_cluster.h"
#include "slurm_plugin/controller/query_handler.h"
#include "store/store.h"

namespace flextrain::slurm_plugin {
namespace {

using Steady = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr const char* kControllerVersion = FLEXTRAIN_VERSION;
constexpr size_t kMaxQueuedMessages = 20000;
constexpr milliseconds kGlanceEvery{500};
constexpr milliseconds kWakeGivesUp{5000};
constexpr std::chrono::seconds kFaultPause{10};  // a fault that comes back must not spin
// A storm of submissions must not make the controller a load of its own: after a round it rests for
// so many times the round's length, TickSeconds at most (one slow answer of slurmctld must not
// silence it).
constexpr int kRestFactor = 4;

struct Message {
  protocol::Envelope envelope;
  protocol::Caller caller;
  protocol::ReplyPtr reply;
};

int64_t system_clock_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

struct Controller::Impl : std::enable_shared_from_this<Controller::Impl> {
  ControllerDependencies dependencies;
  std::atomic<bool> stopping{false};

  std::mutex mutex;
  std::condition_variable changed;
  // Guarded by mutex:
  ControllerConfig config;
  bool config_changed = false;
  bool started = false, ended = false;
  bool woken = false;
  std::deque<Message> messages;
  std::shared_ptr<store::Reader> reader;
  std::shared_ptr<const LiveState> live = std::make_shared<LiveState>();
  std::string start_error;  // why there is no engine or endpoint yet
  int port = 0;

  std::thread thread;  // touched by start and stop alone

  // Worker only:
  std::unique_ptr<Cluster> real_cluster;
  std::unique_ptr<GuardedCluster> cluster;
  std::unique_ptr<store::Store> store;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<protocol::EndpointServer> server;
  ControllerConfig active;  // the configuration the engine runs with
  std::string logged_error;

  void run() noexcept;
  void work();
  Status bring_up();
  void bring_down();
  void report_start(const Status& status);
  void round();
  bool take_messages();
  void serve_query(const protocol::Envelope& request, const protocol::Caller& caller,
                   const protocol::ReplyPtr& reply);
  void accept(const protocol::Envelope& request, const protocol::Caller& caller,
              protocol::ReplyPtr reply);
  bool is_admin(uid_t uid) const { return uid == 0 || uid == dependencies.slurm_uid; }
};

void Controller::Impl::accept(const protocol::Envelope& request, const protocol::Caller& caller,
                              protocol::ReplyPtr reply) {
  if (stopping) {
    reply->send(protocol::error_response("the controller is stopping"));
    return;
  }
  if (request.type == protocol::kQuery) {
    serve_query(request, caller, reply);
    return;
  }
  {
    std::lock_guard lock(mutex);
    if (messages.size() < kMaxQueuedMessages) {
      messages.push_back({request, caller, std::move(reply)});
      changed.notify_all();
      return;
    }
  }
  reply->send(protocol::error_response("the controller is overloaded: try again"));
}

// On an endpoint thread: reads through a connection of its own and never waits for the worker.
void Controller::Impl::serve_query(const protocol::Envelope& request,
                                   const protocol::Caller& caller,
                                   const protocol::ReplyPtr& reply) {
  std::shared_ptr<store::Reader> source;
  LiveState state;
  std::string error;
  {
    std::lock_guard lock(mutex);
    source = reader;
    state = *live;
    error = start_error;
    state.diag["port"] = port;
    state.diag["database"] = config.database_path;
  }
  state.diag["version"] = kControllerVersion;
  state.diag["slurm_version"] = dependencies.slurm_version;
  state.diag["config_file"] = dependencies.config_file;
  protocol::Envelope response;
  const auto query = protocol::from_json<protocol::QueryRequest>(request.body);
  if (!query.ok()) {
    response.error = query.status().message();
  } else if (!source) {
    response.error = "the controller's database is not open: " + error;
  } else {
    const int64_t now = dependencies.clock();
    Result<Json> rows = source->read([&](store::Queries& queries) {
      return answer_query(*query, {caller.uid, is_admin(caller.uid)}, queries, state, now);
    });
    if (rows.ok()) {
      response.body = std::move(rows).value();
    } else {
      response.error = rows.status().message();
    }
  }
  reply->send(std::move(response));
}

void Controller::Impl::run() noexcept {
  while (!stopping) {
    try {
      work();
    } catch (const std::exception& error) {
      log_error("fault in the controller: {}; it begins anew, jobs run on meanwhile", error.what());
    } catch (...) {
      log_error("fault in the controller: unknown; it begins anew, jobs run on meanwhile");
    }
    try {
      bring_down();
    } catch (...) {
      log_error("the controller did not shut down in order");
    }
    // What a fault leaves half done is what a crash leaves: store and cluster are read again.
    std::unique_lock lock(mutex);
    changed.wait_for(lock, kFaultPause, [&] { return stopping.load(); });
  }
  std::lock_guard lock(mutex);
  ended = true;
  changed.notify_all();
}

Status Controller::Impl::bring_up() {
  if (!cluster) {
    ASSIGN_OR_RETURN(real_cluster, dependencies.make_cluster());
    cluster = std::make_unique<GuardedCluster>(*real_cluster, stopping);
  }
  if (!store) {
    RETURN_IF_ERROR(make_directories(parent_folder(active.database_path)));
    store::OpenOptions options;
    options.path = active.database_path;
    ASSIGN_OR_RETURN(store, store::Store::open(options));
    if (!store->open_note().empty()) log_warning("{}", store->open_note());
    ASSIGN_OR_RETURN(auto opened, store::Reader::open(active.database_path));
    std::lock_guard lock(mutex);
    reader = std::move(opened);
  }
  if (!engine) {
    auto made = std::make_unique<Engine>(
        active, *cluster, *store, Engine::Options{dependencies.clock, dependencies.slurm_uid});
    RETURN_IF_ERROR(made->load());
    engine = std::move(made);
  }
  if (!server) {
    auto auth = dependencies.auth;
    if (!auth) {
      ASSIGN_OR_RETURN(auth, protocol::make_munge_authenticator({.socket = active.munge_socket}));
    }
    protocol::EndpointOptions options;
    options.bind_address = active.endpoint_address;
    options.port = active.endpoint_port;
    // The handler owns what it uses: a request may still be under way when the controller is gone.
    auto self = shared_from_this();
    ASSIGN_OR_RETURN(server, protocol::EndpointServer::start(
                                 options, auth,
                                 [self](const protocol::Envelope& request,
                                        const protocol::Caller& caller, protocol::ReplyPtr reply) {
                                   self->accept(request, caller, std::move(reply));
                                 }));
    log_info("listening on port {}", server->port());
    std::lock_guard lock(mutex);
    port = server->port();
  }
  return {};
}

void Controller::Impl::bring_down() {
  if (server) server->stop();
  server.reset();
  {
    std::lock_guard lock(mutex);
    port = 0;
    reader.reset();
    messages.clear();
  }
  engine.reset();
  store.reset();
  cluster.reset();
  real_cluster.reset();
}

// One log line per different reason, not one per try.
void Controller::Impl::report_start(const Status& status) {
  const std::string text = status.ok() ? "" : status.to_string();
  if (!text.empty() && text != logged_error && !stopping) {
    log_error("elasticity is off for now, tried again at every tick: {}", text);
  }
  logged_error = text;
  std::lock_guard lock(mutex);
  start_error = text;
}

bool Controller::Impl::take_messages() {
  std::deque<Message> batch;
  {
    std::lock_guard lock(mutex);
    batch.swap(messages);
  }
  for (Message& message : batch) {
    if (stopping) break;
    try {
      engine->handle(message.envelope, message.caller, message.reply);
    } catch (const std::exception& error) {
      // One agent's message must not end the work for all of them.
      log_error("a '{}' of job {}, uid {}, failed: {}", message.envelope.type,
                message.envelope.job.job_id, message.caller.uid, error.what());
      message.reply->send(
          protocol::error_response("internal error in the controller: see its log"));
    }
  }
  return !batch.empty();
}

void Controller::Impl::round() {
  engine->tick();
  std::lock_guard lock(mutex);
  live = engine->live();
}

void Controller::Impl::work() {
  if (dependencies.on_worker_start) dependencies.on_worker_start();
  Steady::time_point next_tick = Steady::now(), next_glance = next_tick;
  Steady::time_point earliest = next_tick;  // no round before
  bool waking = false;                      // a submission has not been seen yet
  Steady::time_point wake_since = next_tick;
  milliseconds wake_wait{0};
  uint32_t wake_baseline = 0;
  while (!stopping) {
    bool woken_now = false;
    {
      std::lock_guard lock(mutex);
      if (config_changed || !engine) {
        // Port and path stay what they were opened with.
        const ControllerConfig before = active;
        active = config;
        if (engine) {
          active.database_path = before.database_path;
          active.endpoint_port = before.endpoint_port;
          active.endpoint_address = before.endpoint_address;
          engine->set_config(active);
          next_tick = Steady::now();  // Enabled=no gives the companions back at once
        }
        set_log_level(active.log_level);
        config_changed = false;
      }
      woken_now = std::exchange(woken, false);
    }
    const bool up = engine && server;
    if (!up && Steady::now() >= next_tick) {
      report_start(bring_up());
      next_tick = Steady::now();
      if (!engine) next_tick += std::chrono::seconds(active.tick_seconds);
    }
    if (engine) {
      take_messages();
      const Steady::time_point now = Steady::now();
      if (woken_now && !waking) {
        waking = true;
        wake_since = now;
        wake_wait = milliseconds(active.wake_delay_milliseconds);
        wake_baseline = engine->newest_job_id();
        next_tick = std::min(next_tick, now + wake_wait);
      } else if (woken_now) {
        next_tick = std::min(next_tick, now + milliseconds(active.wake_delay_milliseconds));
      }
      if (engine->wants_tick()) next_tick = std::min(next_tick, now + milliseconds(200));
      next_tick = std::max(next_tick, earliest);
      if (now >= next_tick) {
        round();
        const Steady::time_point after = Steady::now();
        earliest = after + std::min<Steady::duration>(kRestFactor * (after - now),
                                                      std::chrono::seconds(active.tick_seconds));
        next_tick = after + std::chrono::seconds(active.tick_seconds);
        next_glance = after + kGlanceEvery;
        if (waking) {
          if (engine->newest_job_id() > wake_baseline || after - wake_since > kWakeGivesUp) {
            waking = false;
          } else {
            wake_wait = std::max(wake_wait * 2, milliseconds(50));
            next_tick = std::min(next_tick, after + wake_wait);
          }
        }
      } else if (engine->in_transition() && now >= next_glance) {
        engine->glance();
        next_glance = Steady::now() + kGlanceEvery;
      }
    }
    std::unique_lock lock(mutex);
    Steady::time_point until = next_tick;
    if (engine && engine->in_transition()) until = std::min(until, next_glance);
    changed.wait_until(lock, until, [&] {
      return stopping || woken || config_changed || (engine && !messages.empty());
    });
  }
}

Result<std::unique_ptr<Controller>> Controller::create(const ControllerConfig& config,
                                                       ControllerDependencies dependencies) {
  if (!dependencies.make_cluster) return invalid_argument("a controller needs a cluster");
  if (config.database_path.empty() || config.database_path.front() != '/') {
    return invalid_argument("DatabasePath '{}' is not an absolute path", config.database_path);
  }
  if (dependencies.slurm_uid == 0) dependencies.slurm_uid = ::geteuid();  // slurmctld's own
  if (!dependencies.clock) dependencies.clock = system_clock_seconds;
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
    // The thread keeps its own share: a stop() that gives up waiting leaves nothing dangling.
    impl_->thread = std::thread([impl = impl_] { impl->run(); });
  } catch (const std::exception& error) {
    std::lock_guard lock(impl_->mutex);
    impl_->started = false;
    return resource_exhausted("no thread for the controller: {}", error.what());
  }
  return {};
}

bool Controller::stop(milliseconds deadline) {
  impl_->stopping = true;
  std::unique_lock lock(impl_->mutex);
  if (!impl_->started) return true;
  impl_->changed.notify_all();
  const bool ended = impl_->changed.wait_for(lock, deadline, [&] { return impl_->ended; });
  lock.unlock();
  if (!impl_->thread.joinable()) return ended;
  if (ended) {
    impl_->thread.join();
  } else {
    log_warning("the controller's thread is still inside a call; it ends when that returns");
    impl_->thread.detach();
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
  return impl_->port;
}

}  // namespace flextrain::slurm_plugin
