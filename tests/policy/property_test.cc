// SPDX-License-Identifier: MIT
// What must hold for every snapshot, over random ones.
#include <algorithm>
#include <random>
#include <set>

#include "tests/policy/builders.h"

namespace flextrain::policy {
namespace {

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  int between(int low, int high) {
    return low + static_cast<int>(engine_() % static_cast<uint32_t>(high - low + 1));
  }
  bool chance(int percent) { return between(1, 100) <= percent; }

 private:
  std::mt19937 engine_;
};

// Nodes of 8 GPUs handed out to bases, companions and idleness, so that offers never exceed what a
// node has.
Snapshot random_snapshot(Random& random) {
  Snapshot snapshot = empty_snapshot();
  const int nodes = random.between(1, 12);
  std::vector<int> idle(static_cast<size_t>(nodes), 8);
  const auto name = [](int node) { return "n" + std::to_string(node); };
  uint32_t next_id = 100;
  for (int j = random.between(0, 5); j > 0; --j) {
    ElasticJobView job = elastic(static_cast<uint32_t>(j), random.between(1, 8));
    job.max_gpus = random.between(job.base_gpus, 5 * job.base_gpus);
    job.steady = random.chance(85);
    job.failures = random.chance(20) ? random.between(1, 9) : 0;
    job.last_failure_time = kNow - random.between(0, 500);
    if (random.chance(60)) job.remaining_seconds = random.between(1, 1000);
    if (random.chance(60)) job.grow_overhead_seconds = random.between(1, 100);
    job.table.clear();
    double speed = 1000;
    if (random.chance(90))
      for (int gpus = job.base_gpus; gpus <= 4 * job.base_gpus; gpus += random.between(1, 4)) {
        job.table.push_back({gpus, speed});
        speed *= 1 + random.between(-5, 60) / 100.0;
      }
    for (int c = random.between(0, 3); c > 0; --c) {
      const int node = random.between(0, nodes - 1);
      const int gpus = random.between(1, 8);
      const bool there = std::any_of(job.companions.begin(), job.companions.end(),
                                     [&](const CompanionView& v) { return v.node == name(node); });
      if (there || idle[static_cast<size_t>(node)] < gpus) continue;
      idle[static_cast<size_t>(node)] -= gpus;
      add_companion(job, next_id++, name(node), gpus);
      if (!job.steady && random.chance(30)) {
        job.companions.back().leaving = true;
        job.held_gpus -= gpus;
      }
    }
    snapshot.elastic.push_back(job);
  }
  std::shuffle(snapshot.elastic.begin(), snapshot.elastic.end(), std::mt19937(next_id));
  for (int node = 0; node < nodes; ++node) {
    const int free = idle[static_cast<size_t>(node)];
    snapshot.idle_gpus += free;
    if (free == 0) continue;
    for (ElasticJobView& job : snapshot.elastic)
      if (random.chance(80)) job.offers.push_back({name(node), random.between(1, free)});
  }
  for (int w = random.chance(50) ? random.between(1, 3) : 0; w > 0; --w) {
    WaitingJob job;
    job.job_id = next_id++;
    job.nodes = random.between(1, 3);
    job.gpus_per_node = random.chance(60) ? random.between(1, 8) : 0;
    job.gpus = job.gpus_per_node > 0 ? job.nodes * job.gpus_per_node : random.between(1, 20);
    for (int node = 0; node < nodes; ++node)
      if (random.chance(80)) {
        job.usable_nodes.push_back(name(node));
        if (idle[static_cast<size_t>(node)] > 0)
          job.offers.push_back({name(node), idle[static_cast<size_t>(node)]});
      }
    snapshot.waiting.push_back(job);
  }
  snapshot.forecast = {{}, random.between(0, 100), 3600};
  double rate = random.between(0, 100) / 3600.0;
  for (int bucket = random.between(1, 12); bucket > 0; --bucket) {
    snapshot.forecast.per_second.push_back(rate);
    rate *= random.between(0, 100) / 100.0;
  }
  return snapshot;
}

Parameters random_parameters(Random& random) {
  Parameters parameters;
  parameters.gate = static_cast<Gate>(random.between(0, 4));
  parameters.victims = static_cast<VictimRule>(random.between(0, 1));
  parameters.require_empty_queue = random.chance(50);
  parameters.remaining_time_guard = random.chance(80);
  parameters.max_growth = random.between(1, 5);
  return parameters;
}

const ElasticJobView* find(const Snapshot& snapshot, uint32_t id) {
  for (const ElasticJobView& job : snapshot.elastic)
    if (job.job_id == id) return &job;
  return nullptr;
}

bool equal(const std::vector<Decision>& a, const std::vector<Decision>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].kind != b[i].kind || a[i].job_id != b[i].job_id || a[i].for_job != b[i].for_job ||
        a[i].to_gpus != b[i].to_gpus || a[i].give_back != b[i].give_back ||
        a[i].rule != b[i].rule || a[i].reason != b[i].reason || a[i].inputs != b[i].inputs ||
        taken(a[i]) != taken(b[i]) || nodes_of(a[i].take) != nodes_of(b[i].take))
      return false;
  }
  return true;
}

bool in_table(const ElasticJobView& job, int gpus) {
  return std::any_of(job.table.begin(), job.table.end(),
                     [&](const TableEntry& entry) { return entry.gpus == gpus; });
}

void check_growth(const Snapshot& snapshot, const Parameters& parameters, const Decision& decision,
                  std::map<std::string, int>& taken_on) {
  const ElasticJobView& job = *find(snapshot, decision.job_id);
  ASSERT_TRUE(job.steady);
  ASSERT_GT(decision.to_gpus, job.held_gpus);
  ASSERT_LE(decision.to_gpus, job.max_gpus);
  ASSERT_LE(decision.to_gpus, parameters.max_growth * job.base_gpus);
  ASSERT_TRUE(in_table(job, decision.to_gpus));
  ASSERT_EQ(taken(decision), decision.to_gpus - decision.from_gpus);
  std::set<std::string> nodes;
  for (const CompanionView& companion : job.companions) nodes.insert(companion.node);
  for (const NodeOffer& take : decision.take) {
    ASSERT_GT(take.gpus, 0);
    ASSERT_TRUE(nodes.insert(take.node).second) << "two companions on one node";
    const auto offer = std::find_if(job.offers.begin(), job.offers.end(),
                                    [&](const NodeOffer& o) { return o.node == take.node; });
    ASSERT_NE(offer, job.offers.end());
    ASSERT_LE(take.gpus, offer->gpus);
    taken_on[take.node] += take.gpus;
  }
}

void check_shrink(const Snapshot& snapshot, const Decision& decision,
                  std::map<std::string, int>& freed) {
  const ElasticJobView& job = *find(snapshot, decision.job_id);
  ASSERT_TRUE(job.steady);
  ASSERT_GE(decision.to_gpus, job.base_gpus);
  ASSERT_FALSE(decision.give_back.empty());
  int given = 0;
  for (const uint32_t id : decision.give_back) {
    const auto companion = std::find_if(job.companions.begin(), job.companions.end(),
                                        [&](const CompanionView& c) { return c.job_id == id; });
    ASSERT_NE(companion, job.companions.end()) << "only its own companions";
    given += companion->gpus;
    freed[companion->node] += companion->gpus;
  }
  ASSERT_EQ(decision.to_gpus, job.held_gpus - given);
  ASSERT_TRUE(decision.to_gpus == job.base_gpus || in_table(job, decision.to_gpus));
}

// The first waiting job for which something was reclaimed fits, by a check of its own, into what is
// idle, coming back and freed.
void check_enough(const Snapshot& snapshot, uint32_t for_job, std::map<std::string, int> freed) {
  const auto job = std::find_if(snapshot.waiting.begin(), snapshot.waiting.end(),
                                [&](const WaitingJob& w) { return w.job_id == for_job; });
  ASSERT_NE(job, snapshot.waiting.end());
  for (const ElasticJobView& elastic : snapshot.elastic)
    for (const CompanionView& companion : elastic.companions)
      if (companion.leaving) freed[companion.node] += companion.gpus;
  int nodes = 0, gpus = 0, idle_nodes = 0, idle_gpus = 0;
  for (const std::string& node : job->usable_nodes) {
    int free = 0;
    for (const NodeOffer& offer : job->offers)
      if (offer.node == node) free = offer.gpus;
    if (free >= std::max(1, job->gpus_per_node)) ++idle_nodes, idle_gpus += free;
    free += freed[node];
    if (free >= std::max(1, job->gpus_per_node)) ++nodes, gpus += free;
  }
  ASSERT_GE(nodes, job->nodes);
  ASSERT_GE(gpus, job->gpus);
}

TEST(PolicyProperty, HoldsForRandomSnapshots) {
  std::map<DecisionKind, int> seen;
  for (uint32_t seed = 1; seed <= 20'000; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Random random(seed);
    const Snapshot snapshot = random_snapshot(random);
    const Parameters parameters = random_parameters(random);
    const auto decisions = decide(snapshot, parameters);
    ASSERT_TRUE(equal(decisions, decide(snapshot, parameters))) << "deterministic";

    std::set<uint32_t> decided;
    std::map<std::string, int> taken_on, freed;
    bool growths_began = false;
    for (const Decision& decision : decisions) {
      ++seen[decision.kind];
      ASSERT_FALSE(decision.reason.empty());
      ASSERT_FALSE(decision.rule.empty());
      if (decision.job_id != 0) {
        ASSERT_TRUE(decided.insert(decision.job_id).second) << "one decision per job";
      }
      switch (decision.kind) {
        case DecisionKind::kGrow:
          growths_began = true;
          check_growth(snapshot, parameters, decision, taken_on);
          break;
        case DecisionKind::kShrink:
          ASSERT_FALSE(growths_began) << "shrinks come first";
          check_shrink(snapshot, decision, freed);
          break;
        case DecisionKind::kRefuseGrow:
          ASSERT_TRUE(decision.take.empty() && decision.give_back.empty());
          break;
        case DecisionKind::kAbortReclaim:
          ASSERT_TRUE(decision.give_back.empty());
          break;
      }
      if (::testing::Test::HasFatalFailure()) return;
    }
    ASSERT_EQ(decided.size(), snapshot.elastic.size()) << "an explanation for every elastic job";
    for (const auto& [node, gpus] : taken_on) {
      int most = 0;
      for (const ElasticJobView& job : snapshot.elastic)
        for (const NodeOffer& offer : job.offers)
          if (offer.node == node) most = std::max(most, offer.gpus);
      ASSERT_LE(gpus, most) << "two growths share " << node;
    }
    for (const Decision& decision : decisions)
      if (decision.kind == DecisionKind::kShrink) check_enough(snapshot, decision.for_job, freed);
    if (::testing::Test::HasFatalFailure()) return;
  }
  for (const DecisionKind kind : {DecisionKind::kGrow, DecisionKind::kRefuseGrow,
                                  DecisionKind::kShrink, DecisionKind::kAbortReclaim})
    EXPECT_GT(seen[kind], 500) << decision_kind_name(kind) << ": the snapshots must reach it";
}

// The order in which the elastic jobs are listed must not matter.
TEST(PolicyProperty, OrderOfJobsDoesNotMatter) {
  for (uint32_t seed = 1; seed <= 2000; ++seed) {
    Random random(seed);
    Snapshot snapshot = random_snapshot(random);
    const Parameters parameters = random_parameters(random);
    const auto decisions = decide(snapshot, parameters);
    std::reverse(snapshot.elastic.begin(), snapshot.elastic.end());
    ASSERT_TRUE(equal(decisions, decide(snapshot, parameters))) << "seed " << seed;
  }
}

// A reclaim asks for nothing that is not needed: with any one companion less given back (and its
// victim unchanged otherwise), a single waiting job would not fit, unless the victim had to drop to
// an entry of its table.
TEST(PolicyProperty, ReclaimIsMinimal) {
  int checked = 0;
  for (uint32_t seed = 1; seed <= 20'000; ++seed) {
    Random random(seed);
    Snapshot snapshot = random_snapshot(random);
    if (snapshot.waiting.empty()) continue;
    snapshot.waiting.resize(1);
    for (ElasticJobView& job : snapshot.elastic) {  // every count is an entry
      job.table.clear();
      for (int gpus = 1; gpus <= 40; ++gpus) job.table.push_back({gpus, 1000.0 + gpus});
    }
    std::map<std::string, int> free;
    const WaitingJob& waiting = snapshot.waiting[0];
    for (const NodeOffer& offer : waiting.offers) free[offer.node] += offer.gpus;
    std::map<uint32_t, CompanionView> companions;
    for (const ElasticJobView& job : snapshot.elastic)
      for (const CompanionView& companion : job.companions) {
        companions[companion.job_id] = companion;
        if (companion.leaving) free[companion.node] += companion.gpus;
      }
    std::vector<CompanionView> given;
    for (const Decision& decision : decide(snapshot, no_gate()))
      for (const uint32_t id : decision.give_back) given.push_back(companions.at(id));
    for (size_t without = 0; without < given.size(); ++without) {
      std::map<std::string, int> rest = free;
      for (size_t i = 0; i < given.size(); ++i)
        if (i != without) rest[given[i].node] += given[i].gpus;
      int nodes = 0, gpus = 0;
      for (const std::string& node : waiting.usable_nodes)
        if (rest[node] >= std::max(1, waiting.gpus_per_node)) ++nodes, gpus += rest[node];
      ASSERT_FALSE(nodes >= waiting.nodes && gpus >= waiting.gpus) << "seed " << seed;
      ++checked;
    }
  }
  EXPECT_GT(checked, 1000);
}

}  // namespace
}  // namespace flextrain::policy
