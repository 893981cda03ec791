// SPDX-License-Identifier: GPL-2.0-or-later
// What a Controller's threads share. Private to controller*.cc.
//
// Threads: the worker (database, Cluster, decisions, agents' messages), the query thread (sflex's
// questions, over a database connection of its own), the monitor (the watchdog's clock, the
// metrics' text), and the endpoints' own, which only queue for these or hand that text out. `mutex`
// is held for copies and swaps alone: never over I/O, an RPC, a log line or a destructor that may
// do such things.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "protocol/endpoint_server.h"
#include "slurm_plugin/controller/controller.h"
#include "slurm_plugin/controller/engine.h"
#include "slurm_plugin/controller/guarded_cluster.h"
#include "slurm_plugin/controller/watchdog.h"
#include "store/store.h"

namespace flextrain::slurm_plugin {

struct Controller::Impl : std::enable_shared_from_this<Controller::Impl> {
  struct Message {
    protocol::Envelope envelope;
    protocol::Caller caller;
    protocol::ReplyPtr reply;
  };
  using Messages = std::deque<Message>;

  ControllerDependencies dependencies;
  std::atomic<bool> stopping{false};
  std::atomic<int> metrics_port{0};     // open
  std::atomic<double> rest_seconds{0};  // after the last round
  Watchdog watchdog;

  std::mutex mutex;
  std::condition_variable changed;
  // Guarded by mutex:
  ControllerConfig config;
  bool config_changed = false;
  bool started = false;
  int running = 0;  // threads that have not ended
  bool woken = false;
  Messages messages, queries;
  size_t messages_bytes = 0;  // JSON text of `messages`
  std::shared_ptr<store::Reader> reader;
  std::shared_ptr<const LiveState> live = std::make_shared<LiveState>();
  std::string start_error;  // why there is no engine or endpoint yet
  std::shared_ptr<protocol::EndpointServer> server;

  std::vector<std::thread> threads;  // touched by start and stop alone

  // Worker only:
  std::unique_ptr<Cluster> real_cluster;
  std::unique_ptr<GuardedCluster> cluster;
  std::unique_ptr<store::Store> store;
  std::unique_ptr<Engine> engine;
  int64_t reader_generation = 0;  // of the store, when `reader` was opened
  ControllerConfig active;        // the configuration the engine runs with
  std::string logged_error;

  // controller.cc
  void launch(void (Impl::*body)(), const char* name);
  void monitor();
  void accept(const protocol::Envelope& request, const protocol::Caller& caller,
              protocol::ReplyPtr reply);

  // controller_worker.cc
  void run();
  void work();
  bool take_config();
  Status bring_up();
  Status open_reader();
  void bring_down();
  void report_start(const Status& status);
  void round();
  void show();
  void take_messages();

  // controller_queries.cc
  void answer_queries();
  void answer_one(const Message& query);
  Json diag();
  std::string metrics();
  bool is_admin(uid_t uid) const { return uid == 0 || uid == dependencies.slurm_uid; }
};

}  // namespace flextrain::slurm_plugin
