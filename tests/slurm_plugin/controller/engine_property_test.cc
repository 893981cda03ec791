// SPDX-License-Identifier: GPL-2.0-or-later
// What must hold whatever happens: over random events on random clusters under random policies,
// after every round. GPUs are neither made nor lost, nobody grows into what is not idle or what a
// waiting job could use, and every decision in the store is made again from its stored snapshot.
#include <unistd.h>

#include <cstdlib>
#include <set>

#include "engine_world.h"
#include "policy/snapshot_json.h"
#include "slurm_plugin/controller/snapshot.h"
#include "slurm_plugin/controller/waiting.h"

namespace flextrain::slurm_plugin {
namespace {

constexpr int kSeeds = 80, kRounds = 120;

struct Seen {  // over all seeds: the world must reach what is checked
  std::map<std::string, int> decisions, outcomes;
  int growths_while_jobs_wait = 0, lost_nodes = 0, replayed = 0;
};

// The cluster a moment before a round.
struct Before {
  std::map<std::string, int> idle;  // of usable nodes
  std::set<uint32_t> companions;
  bool jobs_wait = false;  // for GPUs alone
};

class Property {
 public:
  Property(uint32_t seed, Seen& seen) : seen_(seen), random_(seed) {
    policy::Parameters& policy = rig_.config.policy;
    policy.gate = static_cast<policy::Gate>(below(5));
    policy.forecast = static_cast<policy::ForecastKind>(below(4));
    policy.victims = static_cast<policy::VictimRule>(below(2));
    policy.require_empty_queue = below(2) == 0;
    policy.remaining_time_guard = below(2) == 0;
    policy.arrival_window_seconds = 3600;
    policy.queue_depth = below(4) == 0 ? 1 : 500;
    if (below(4) == 0) policy.user_max_expanded = 1 + below(16);
    if (below(4) == 0) policy.idle_reserve = below(60) / 100.0;
    if (below(4) == 0) policy.cooldown_seconds = 60;
    if (below(4) == 0) policy.max_scalings_per_hour = 1 + below(5);
    rig_.config.share_base_nodes = below(2) == 0;
    rig_.steady = true;
    options_.seed = seed;
    options_.nodes = 2 + below(8);
    options_.gpus_per_node = 1 << below(4);
    options_.elastic_gpus.clear();
    for (int gpus = 1; gpus <= options_.gpus_per_node; gpus *= 2)
      options_.elastic_gpus.push_back(gpus);
    options_.elastic_every = 5 + below(20);
    options_.elastic_rounds = 60;
    options_.rigid_every = 4 + below(20);
    options_.refused_submissions = options_.lost_node = 60;
    options_.clock_set = options_.deaf = 100;
    options_.requeue = options_.new_agent = options_.lost_companion = 200;
    world_.emplace(rig_, options_);
  }

  void run() {
    for (int n = 0; n < kRounds; ++n) {
      SCOPED_TRACE("round " + std::to_string(n));
      world_->happen(n);
      const bool restarted = world_->chance(60) == 0;
      if (restarted) world_->restart();
      rig_.cluster.advance(10);
      const Before before = look();
      rig_.engine->tick();
      const Result<ClusterView> view = rig_.cluster.observe();
      if (!view.ok()) continue;  // nor has the engine seen anything
      check_growth(before, *view, restarted);
      check_conservation(*view);
      check_live(*view);
      if (::testing::Test::HasFailure()) return;
    }
    check_replay();
    const auto scalings = rig_.store->queries().scalings({.limit = 100'000}).value();
    for (const store::ScalingRow& row : scalings) {
      ++seen_.outcomes[row.kind + " " + row.outcome];
    }
    world_->end();
  }

 private:
  int below(int limit) { return static_cast<int>(random_() % static_cast<unsigned>(limit)); }

  Before look() const {
    Before before;
    const Result<ClusterView> view = rig_.cluster.observe();
    if (!view.ok()) return before;
    for (const NodeRecord& node : view->nodes) {
      if (node.usable) before.idle[node.name] = node.gpus - node.gpus_allocated;
      if (!node.usable) ++seen_.lost_nodes;
    }
    for (const JobRecord& job : view->jobs) {
      if (protocol::companion_from_comment(job.admin_comment)) before.companions.insert(job.job_id);
      if (classify_waiting(job, view->now) == WaitKind::kGpus) before.jobs_wait = true;
    }
    return before;
  }

  // Companions submitted in this round fit into what was idle before it, one per job and node.
  void check_growth(const Before& before, const ClusterView& view, bool restarted) const {
    std::map<std::string, int> taken;
    std::set<std::pair<std::string, uint32_t>> places;
    for (const JobRecord& job : view.jobs) {
      const auto tag = protocol::companion_from_comment(job.admin_comment);
      if (!tag) continue;
      EXPECT_TRUE(places.emplace(job.required_nodes, tag->base_job_id).second)
          << "two companions of job " << tag->base_job_id << " on " << job.required_nodes;
      if (before.companions.contains(job.job_id)) continue;
      taken[job.required_nodes] += job.gpus_requested;
    }
    for (const auto& [node, gpus] : taken) {
      ASSERT_TRUE(before.idle.contains(node)) << node << " is not usable";
      EXPECT_LE(gpus, before.idle.at(node)) << "companions on " << node;
    }
    // What a restarted controller finds half submitted it completes first.
    if (taken.empty() || !before.jobs_wait || restarted) return;
    EXPECT_FALSE(rig_.config.policy.require_empty_queue) << "a growth while a job waits for GPUs";
    ++seen_.growths_while_jobs_wait;
  }

  // Every GPU of a node is idle or held by one running job; every companion serves one job, which
  // knows it; nobody counts on more than what it has been given.
  void check_conservation(const ClusterView& view) const {
    std::map<uint32_t, const JobRecord*> records;
    std::map<std::string, int> held;
    for (const JobRecord& job : view.jobs) {
      records[job.job_id] = &job;
      for (const auto& [node, gpus] : job.gpus_on_node) held[node] += gpus;
    }
    for (const NodeRecord& node : view.nodes) {
      EXPECT_EQ(held[node.name], node.gpus_allocated) << node.name;
      EXPECT_LE(held[node.name], node.gpus) << node.name;
    }
    std::set<uint32_t> claimed;
    for (const auto& job : rig_.engine->jobs()) {
      SCOPED_TRACE("job " + std::to_string(job->row.key.job_id));
      int used = job->row.base_gpus;
      for (const auto& [id, companion] : job->companions) {
        EXPECT_TRUE(claimed.insert(id).second) << "companion " << id << " serves two jobs";
        const auto record = records.find(id);
        if (record != records.end()) {
          EXPECT_EQ(record->second->gpus_requested, companion.row.gpus);
          EXPECT_EQ(record->second->required_nodes, companion.row.node);
        }
        if (job->uses(id)) used += companion.row.gpus;
      }
      EXPECT_LE(job->held_gpus(), used);
      EXPECT_GE(job->held_gpus(), job->row.base_gpus) << "the base is the floor";
      EXPECT_LE(job->held_gpus(), job->row.max_gpus);
      if (const auto base = records.find(job->row.key.job_id);
          base != records.end() && base->second->state == JobState::kRunning &&
          base->second->restart_count == job->row.key.restart_count) {
        EXPECT_EQ(base->second->gpus_allocated, job->row.base_gpus) << "nobody resizes a base";
      }
    }
    for (const JobRecord& job : view.jobs) {
      if (!protocol::companion_from_comment(job.admin_comment)) continue;
      EXPECT_TRUE(claimed.contains(job.job_id)) << "companion " << job.job_id << " serves nobody";
    }
  }

  // What `sflex idle` shows adds up.
  void check_live(const ClusterView& view) const {
    std::map<std::string, const NodeRecord*> nodes;
    for (const NodeRecord& node : view.nodes) nodes[node.name] = &node;
    const std::shared_ptr<const LiveState> live = rig_.engine->live();
    const Json& rows = *live->idle;
    EXPECT_EQ(rows.size(), nodes.size());
    for (const Json& row : rows) {
      const int gpus = row.at("gpus"), allocated = row.at("allocated"), idle = row.at("idle");
      EXPECT_EQ(gpus, nodes.at(row.at("node"))->gpus);
      EXPECT_LE(allocated + idle, gpus) << row.dump();
      EXPECT_LE(row.at("expanded").get<int>(), allocated) << row.dump();
    }
  }

  // Each row of the store against the policy, asked again with the row's own snapshot.
  void check_replay() const {
    const auto rows = rig_.store->queries().decisions({.limit = 100'000}).value();
    for (const store::DecisionRow& row : rows) {
      ++seen_.decisions[row.kind];
      if (row.kind == "pause" || row.kind == "resume" || row.rule == "lease-end") continue;
      SCOPED_TRACE("decision " + std::to_string(row.id) + ": " + row.reason);
      const Result<Json> json = rig_.store->queries().snapshot(row.snapshot_id);
      ASSERT_TRUE(json.ok()) << json.status().message();
      const auto stored = policy::snapshot_from_json(*json);
      ASSERT_TRUE(stored.ok()) << stored.status().message();
      check_snapshot(stored->snapshot);
      const auto decisions = policy::decide(stored->snapshot, stored->parameters);
      int growths = 0;
      const policy::Decision* again = nullptr;
      for (const policy::Decision& decision : decisions) {
        for (const policy::NodeOffer& take : decision.take) growths += take.gpus;
        if (row.job.job_id != 0 ? decision.job_id == row.job.job_id
                                : decision.job_id == 0 && decision.for_job == row.for_job) {
          again = &decision;
        }
      }
      EXPECT_LE(growths, stored->snapshot.idle_gpus);
      ASSERT_NE(again, nullptr);
      const store::DecisionRow now = decision_row(*again, nullptr, 0);
      EXPECT_EQ(now.kind, row.kind);
      EXPECT_EQ(now.for_job, row.for_job);
      EXPECT_EQ(now.rule, row.rule);
      EXPECT_EQ(now.reason, row.reason);
      EXPECT_EQ(now.formula, row.formula);
      EXPECT_EQ(now.from_gpus, row.from_gpus);
      EXPECT_EQ(now.to_gpus, row.to_gpus);
      EXPECT_EQ(now.inputs, row.inputs);
      EXPECT_EQ(now.take, row.take);
      EXPECT_EQ(now.give_back, row.give_back);
      ++seen_.replayed;
    }
  }

  // What the policy is told counts no GPU twice. (Companions that wait do not count: other jobs may
  // have been faster.)
  void check_snapshot(const policy::Snapshot& snapshot) const {
    int told = snapshot.idle_gpus;
    std::map<std::string, int> coming_back;
    for (const policy::ElasticJobView& job : snapshot.elastic) {
      if (job.steady) told += job.held_gpus;
      for (const policy::CompanionView& companion : job.companions) {
        if (companion.leaving) coming_back[companion.node] += companion.gpus;
      }
    }
    for (const auto& [node, gpus] : coming_back) told += gpus;
    EXPECT_LE(told, snapshot.total_gpus);
    for (const policy::WaitingJob& job : snapshot.waiting) {
      for (const policy::NodeOffer& offer : job.offers) {
        EXPECT_LE(offer.gpus + coming_back[offer.node], options_.gpus_per_node) << offer.node;
      }
    }
  }

  Seen& seen_;
  std::mt19937 random_;
  WorldOptions options_;
  mutable Rig rig_;
  std::optional<EngineWorld> world_;
};

TEST(EngineProperty, HoldsWhateverHappens) {
  if (::access("/dev/shm", W_OK) == 0) ::setenv("TMPDIR", "/dev/shm", 1);
  set_log_level(LogLevel::kError);
  Seen seen;
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Property property(seed, seen);
    property.run();
    if (::testing::Test::HasFailure()) return;
  }
  for (const char* kind : {"grow", "refuse", "shrink", "abort"}) {
    EXPECT_GT(seen.decisions[kind], 20) << kind;
  }
  for (const char* outcome : {"grow done", "grow failed", "grow rolled-back", "shrink done"}) {
    EXPECT_GT(seen.outcomes[outcome], 2) << outcome;
  }
  EXPECT_GT(seen.growths_while_jobs_wait, 5);
  EXPECT_GT(seen.lost_nodes, 50);
  EXPECT_GT(seen.replayed, 500);
  for (const auto& [name, count] : seen.decisions) RecordProperty("decisions " + name, count);
  for (const auto& [name, count] : seen.outcomes) RecordProperty(name, count);
}

}  // namespace
}  // namespace flextrain::slurm_plugin
