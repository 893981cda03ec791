// SPDX-License-Identifier: GPL-2.0-or-later
// A controller's engine over a fake cluster and a real store, with agents that answer as told.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "protocol/elastic_request.h"
#include "slurm_plugin/cluster/fake_cluster.h"
#include "slurm_plugin/controller/engine.h"
#include "store/store.h"
#include "tests/temp_folder.h"

namespace flextrain::slurm_plugin {

class TestReply : public protocol::Reply {
 public:
  bool send(protocol::Envelope response) override {
    if (answer_) return false;
    answer_ = std::move(response);
    return true;
  }
  void send_after(std::chrono::milliseconds, protocol::Envelope response) override {
    later_ = std::move(response);
  }
  bool answered() const override { return answer_.has_value(); }
  std::optional<protocol::Envelope> answer_, later_;
};

class Rig {
 public:
  static constexpr uid_t kSlurmUser = 900;

  Rig() {
    cluster.add_partition("gpu");
    config.policy.gate = policy::Gate::kNone;
    config.policy.default_overhead_seconds = 5;
  }
  ~Rig() {
    engine.reset();
    store.reset();
  }

  void nodes(int count, int gpus = 8) {
    for (int n = 1; n <= count; ++n) cluster.add_node("n" + std::to_string(n), gpus);
  }

  // Starts, or restarts as after a crash.
  void start() {
    engine.reset();
    store.reset();
    auto opened = store::Store::open(
        {.path = folder_.path("db"), .statfs_magic = std::nullopt, .max_pages = max_pages});
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    store = std::move(opened).value();
    engine = std::make_unique<Engine>(
        config, cluster, *store,
        Engine::Options{[this] { return cluster.now(); }, kSlurmUser, steady_clock()});
    ASSERT_TRUE(engine->load().ok());
  }

  uint32_t submit(uint32_t user, int gpus, int nodes_wanted = 1, bool elastic = true) {
    JobRecord job;
    job.user_id = user;
    job.group_id = user;
    job.user_name = "user" + std::to_string(user);
    job.name = "job";
    job.partition = "gpu";
    job.gpus_requested = gpus;
    job.nodes_requested = nodes_wanted;
    job.cpus_requested = gpus;
    job.tres_per_node = "gres:gpu:" + std::to_string(gpus / nodes_wanted);
    if (elastic) job.admin_comment = protocol::elastic_token({});
    return cluster.submit(job);
  }

  // No growth from now on, after a first one.
  void stop_growing() {
    config.policy.cooldown_seconds = 1'000'000;
    engine->set_config(config);
  }

  // One whole round after `seconds`.
  void step(int64_t seconds = 10) {
    cluster.advance(seconds);
    engine->tick();
  }

  const ManagedJob* job(uint32_t id) const {
    for (const auto& job : engine->jobs()) {
      if (job->row.key.job_id == id) return job.get();
    }
    return nullptr;
  }
  std::string state(uint32_t id) const {
    const ManagedJob* found = job(id);
    return found == nullptr ? "none" : std::string(elastic_state_name(found->state));
  }
  std::vector<store::DecisionRow> decisions() { return store->queries().decisions({}).value(); }
  std::vector<store::ScalingRow> scalings() { return store->queries().scalings({}).value(); }

  std::shared_ptr<TestReply> send(std::string_view type, const protocol::JobIdentity& identity,
                                  Json body, uid_t uid) {
    protocol::Envelope request;
    request.type = type;
    request.job = identity;
    request.body = std::move(body);
    auto reply = std::make_shared<TestReply>();
    engine->handle(request, {uid, uid, "10.0.0.1"}, reply);
    return reply;
  }

  // The time of day is set; the engine can tell where `steady` is on.
  void set_clock(int64_t by) {
    cluster.set_clock(by);
    clock_set_ += by;
  }
  std::string database() const { return folder_.path("db"); }

  bool steady = false;  // from the next start() on: a steady clock beside the time of day
  FakeCluster cluster{1'000'000};
  ControllerConfig config;
  int64_t max_pages = 0;  // of the database from the next start() on
  std::unique_ptr<store::Store> store;
  std::unique_ptr<Engine> engine;

 private:
  std::function<int64_t()> steady_clock() {
    if (!steady) return {};
    return [this] { return cluster.now() - clock_set_; };
  }

  int64_t clock_set_ = 0;
  TempFolder folder_;
};

inline Json plan(int gpus) { return {{"id", "plan-" + std::to_string(gpus)}, {"gpus", gpus}}; }

// Throughput 100 per GPU.
inline Json scale_table(std::initializer_list<int> counts) {
  Json entries = Json::array();
  for (const int gpus : counts) {
    entries.push_back({{"shape", {{"gpus", gpus}}},
                       {"plan", plan(gpus)},
                       {"tokens_per_second", 100.0 * gpus},
                       {"kept", true}});
  }
  return {{"version", 1}, {"entries", entries}};
}

// One agent, base or companion.
class TestAgent {
 public:
  TestAgent(Rig& rig, uint32_t job_id) : rig_(rig), record_(rig.cluster.find(job_id)) {}

  protocol::JobIdentity identity() const {
    return {"fake", record_.job_id, record_.submit_time, record_.restart_count};
  }
  std::vector<protocol::Allocation> own() const {
    std::vector<protocol::Allocation> allocations;
    for (const auto& [node, gpus] : rig_.cluster.find(record_.job_id).gpus_on_node) {
      allocations.push_back({record_.job_id, node, gpus, ""});
    }
    return allocations;
  }
  std::shared_ptr<TestReply> send(std::string_view type, Json body) {
    return rig_.send(type, identity(), std::move(body), record_.user_id);
  }

  std::shared_ptr<TestReply> register_base(const std::string& fingerprint = "cpu/avx2",
                                           const std::string& numerics = "exact") {
    protocol::RegisterRequest request;
    request.allocations = own();
    request.fingerprint = fingerprint;
    request.numerics = numerics;
    request.agent_path = "/usr/bin/flextrain-agent";
    request.work_dir = "/home/x";
    return send(protocol::kRegister, protocol::to_json(request));
  }
  std::shared_ptr<TestReply> register_companion(const std::string& fingerprint = "cpu/avx2") {
    const auto tag = protocol::companion_from_comment(record_.admin_comment);
    protocol::RegisterRequest request;
    request.role = protocol::AgentRole::kCompanion;
    request.base_job_id = tag->base_job_id;
    request.intent_id = tag->intent_id;
    request.allocations = own();
    request.fingerprint = fingerprint;
    return send(protocol::kRegister, protocol::to_json(request));
  }
  void table(std::initializer_list<int> counts) {
    protocol::ScaleTableRequest request{scale_table(counts), Json::object()};
    const auto reply = send(protocol::kScaleTable, protocol::to_json(request));
    ASSERT_TRUE(reply->answered());
    EXPECT_EQ(reply->answer_->error, "");
  }
  std::shared_ptr<TestReply> poll(int64_t last_sequence = 0) {
    return send(protocol::kPoll, protocol::to_json(protocol::PollRequest{last_sequence, {}}));
  }
  std::shared_ptr<TestReply> progress(int64_t step, int64_t total, double step_seconds, int gpus,
                                      const std::string& state = "running") {
    protocol::ProgressRequest request;
    request.step = step;
    request.total_steps = total;
    request.step_seconds = step_seconds;
    request.gpus = gpus;
    request.state = state;
    return send(protocol::kProgress, protocol::to_json(request));
  }
  std::shared_ptr<TestReply> report(const std::string& order_id, bool done,
                                    std::vector<protocol::Allocation> used, double total,
                                    const std::string& reason = "") {
    protocol::ReportRequest request;
    request.order_id = order_id;
    request.done = done;
    request.reason = reason;
    request.phases.total = total;
    for (const auto& allocation : used) request.gpus += allocation.gpus;
    request.allocations = std::move(used);
    return send(protocol::kReport, protocol::to_json(request));
  }
  std::shared_ptr<TestReply> bye(int code = 0) {
    return send(protocol::kBye, protocol::to_json(protocol::ByeRequest{code, "done"}));
  }

 private:
  Rig& rig_;
  const JobRecord record_;
};

inline protocol::Order order_of(const TestReply& reply) {
  return protocol::from_json<protocol::Order>(reply.answer_->body).value();
}
inline int gpus_of(const std::vector<protocol::Allocation>& allocations) {
  int gpus = 0;
  for (const auto& allocation : allocations) gpus += allocation.gpus;
  return gpus;
}

}  // namespace flextrain::slurm_plugin
