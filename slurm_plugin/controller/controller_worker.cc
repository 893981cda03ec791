// SPDX-License-Identifier: GPL-2.0-or-later
// The controller's worker thread: brings everything up, runs rounds and messages, begins anew after
// a fault.
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "base/path.h"
#include "base/text.h"
#include "slurm_plugin/controller/controller_impl.h"
#include "slurm_plugin/controller/rest.h"

namespace flextrain::slurm_plugin {
namespace {

using Steady = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kGlanceEvery{500};
constexpr milliseconds kWakeGivesUp{5000};
constexpr std::chrono::seconds kFaultPause{10};  // a fault that comes back must not spin

Steady::duration cpu_time_of_this_thread() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

}  // namespace

void Controller::Impl::run() {
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
}

Status Controller::Impl::bring_up() {
  if (!cluster) {
    ASSIGN_OR_RETURN(real_cluster, dependencies.make_cluster());
    cluster = std::make_unique<GuardedCluster>(*real_cluster, stopping, watchdog);
  }
  if (!store) {
    RETURN_IF_ERROR(make_directories(parent_folder(active.database_path)));
    store::OpenOptions options;
    options.path = active.database_path;
    options.cluster = to_lower(cluster->cluster_name());
    ASSIGN_OR_RETURN(store, store::Store::open(options));
    if (!store->open_note().empty()) log_warning("{}", store->open_note());
    RETURN_IF_ERROR(open_reader());
  }
  if (!engine) {
    auto made = std::make_unique<Engine>(
        active, *cluster, *store,
        Engine::Options{dependencies.clock, dependencies.slurm_uid, dependencies.steady});
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
    ASSIGN_OR_RETURN(
        std::shared_ptr<protocol::EndpointServer> made,
        protocol::EndpointServer::start(
            options, auth,
            [self](const protocol::Envelope& request, const protocol::Caller& caller,
                   protocol::ReplyPtr reply) { self->accept(request, caller, std::move(reply)); }));
    log_info("listening on port {}", made->port());
    std::lock_guard lock(mutex);
    server = std::move(made);
  }
  return {};
}

Status Controller::Impl::open_reader() {
  std::shared_ptr<store::Reader> before;  // closed after the lock is released
  ASSIGN_OR_RETURN(std::shared_ptr<store::Reader> opened,
                   store::Reader::open(active.database_path));
  reader_generation = store->generation();
  std::lock_guard lock(mutex);
  before = std::exchange(reader, std::move(opened));
  return {};
}

void Controller::Impl::bring_down() {
  std::shared_ptr<protocol::EndpointServer> old_server;
  std::shared_ptr<store::Reader> old_reader;
  Messages unanswered, unanswered_queries;
  {
    std::lock_guard lock(mutex);
    old_server.swap(server);
    old_reader.swap(reader);
    unanswered.swap(messages);
    messages_bytes = 0;
    unanswered_queries.swap(queries);
  }
  if (old_server) old_server->stop();
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

void Controller::Impl::take_messages() {
  Messages batch;
  {
    std::lock_guard lock(mutex);
    batch.swap(messages);
    messages_bytes = 0;
  }
  for (Message& message : batch) {
    if (stopping) break;
    try {
      const Watchdog::Span span(watchdog, "message");
      engine->handle(message.envelope, message.caller, message.reply);
    } catch (const std::exception& error) {
      // One agent's message must not end the work for all of them.
      log_error("a '{}' of job {}, uid {}, failed: {}", message.envelope.type,
                message.envelope.job.job_id, message.caller.uid, error.what());
      message.reply->send(
          protocol::error_response("internal error in the controller: see its log"));
    }
  }
}

void Controller::Impl::round() {
  {
    const std::string late = watchdog.reason();
    engine->hold_all(late.empty() ? Hold{} : Hold{"watchdog", late});
    const Watchdog::Span span(watchdog, "tick", true);
    engine->tick();
    // The file under the reader is not the store's any more.
    if (store->generation() != reader_generation) {
      if (const Status status = open_reader(); !status.ok()) {
        log_warning("sflex gets no answers for now: {}", status.message());
      }
    }
  }
  show();
}

void Controller::Impl::show() {
  std::shared_ptr<const LiveState> now_live = engine->live();
  std::lock_guard lock(mutex);
  live.swap(now_live);
}

// Takes a changed configuration over. True when there was one and an engine to take it.
bool Controller::Impl::take_config() {
  bool taken = false;
  {
    std::lock_guard lock(mutex);
    if (!config_changed && engine) return false;
    // Port and path stay what they were opened with.
    const ControllerConfig before = active;
    active = config;
    config_changed = false;
    if (engine) {
      active.database_path = before.database_path;
      active.endpoint_port = before.endpoint_port;
      active.endpoint_address = before.endpoint_address;
      taken = true;
    }
  }
  set_log_level(active.log_level);
  watchdog.set_limit(std::chrono::seconds(active.tick_limit_seconds));
  if (taken) {
    engine->set_config(active);
    watchdog.reset();
  }
  return taken;
}

void Controller::Impl::work() {
  if (dependencies.on_worker_start) dependencies.on_worker_start();
  Steady::time_point next_tick = Steady::now(), next_glance = next_tick, next_tend = next_tick;
  RoundCost cost;  // of the last round
  Steady::time_point rested_since = next_tick;
  // next_tick is when a round is wished for, this when it may begin.
  const auto due = [&] {
    const Steady::duration rest =
        rest_after(cost, engine->pressing(), std::chrono::seconds(active.tick_seconds));
    rest_seconds = std::chrono::duration<double>(rest).count();
    return std::max(next_tick, rested_since + rest);
  };
  bool waking = false;  // a submission has not been seen yet
  Steady::time_point wake_since = next_tick;
  milliseconds wake_wait{0};
  uint32_t wake_baseline = 0;
  while (!stopping) {
    if (take_config()) next_tick = Steady::now();  // Enabled=no gives the companions back at once
    bool woken_now = false;
    {
      std::lock_guard lock(mutex);
      woken_now = std::exchange(woken, false);
    }
    const bool up = engine && server;
    if (!up && Steady::now() >= next_tick) {
      {
        const Watchdog::Span span(watchdog, "start");
        report_start(bring_up());
      }
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
      if (engine->wants_tick()) {
        next_tick = std::min(next_tick, now + milliseconds(200));
        next_tend = std::min(next_tend, now + milliseconds(200));
      }
      if (now >= due()) {
        const Steady::duration cpu_before = cpu_time_of_this_thread();
        round();
        const Steady::time_point after = Steady::now();
        cost = {after - now, cpu_time_of_this_thread() - cpu_before};
        rested_since = after;
        next_tick = next_tend = after + std::chrono::seconds(active.tick_seconds);
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
        const Watchdog::Span span(watchdog, "glance");
        engine->glance();
        next_glance = Steady::now() + kGlanceEvery;
      } else if (now >= next_tend) {
        {
          const Watchdog::Span span(watchdog, "tend");
          engine->tend();
        }
        show();
        next_tend = Steady::now() + std::chrono::seconds(active.tick_seconds);
      }
    }
    std::unique_lock lock(mutex);
    Steady::time_point until = engine ? std::min(due(), next_tend) : next_tick;
    if (engine && engine->in_transition()) until = std::min(until, next_glance);
    changed.wait_until(lock, until, [&] {
      return stopping || woken || config_changed || (engine && !messages.empty());
    });
  }
}

}  // namespace flextrain::slurm_plugin
