// SPDX-License-Identifier: MIT
// What must hold for every snapshot, over random ones.
#include <algorithm>
#include <set>

#include "policy/decision_rules.h"
#include "policy/snapshot_json.h"
#include "tests/policy/random_snapshot.h"

namespace flextrain::policy {
namespace {

const ElasticJobView* find(const Snapshot& snapshot, uint32_t id) {
  for (const ElasticJobView& job : snapshot.elastic)
    if (job.job_id == id) return &job;
  return nullptr;
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

// No growth takes a user, an account or all jobs together beyond a cap, whatever they held before.
void check_caps(const Snapshot& snapshot, const Parameters& parameters,
                const std::vector<Decision>& decisions) {
  std::map<std::string, int> users, accounts, grown_users, grown_accounts;
  int idle = snapshot.idle_gpus, expanded = 0, grown = 0;
  for (const ElasticJobView& job : snapshot.elastic) {
    const int gpus = job.held_gpus - job.base_gpus + job.pending_gpus;
    users[job.user] += gpus;
    accounts[job.account] += gpus;
    expanded += gpus;
    for (const CompanionView& companion : job.companions)
      if (companion.leaving) idle += companion.gpus;
  }
  for (const Decision& decision : decisions) {
    if (decision.kind != DecisionKind::kGrow) continue;
    const ElasticJobView& job = *find(snapshot, decision.job_id);
    grown_users[job.user] += taken(decision);
    grown_accounts[job.account] += taken(decision);
    grown += taken(decision);
  }
  for (const auto& [user, gpus] : grown_users)
    if (parameters.user_max_expanded > 0) {
      ASSERT_LE(users[user] + gpus, parameters.user_max_expanded);
    }
  for (const auto& [account, gpus] : grown_accounts)
    if (parameters.account_max_expanded > 0) {
      ASSERT_LE(accounts[account] + gpus, parameters.account_max_expanded);
    }
  ASSERT_LE(grown, snapshot.idle_gpus);
  if (grown > 0 && parameters.idle_reserve > 0) {
    ASSERT_LE(expanded + grown, (1 - parameters.idle_reserve) * (idle + expanded) + 1e-6);
  }
}

TEST(PolicyProperty, HoldsForRandomSnapshots) {
  std::map<DecisionKind, int> seen;
  std::set<std::pair<DecisionKind, std::string>> rules;
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
      const ElasticJobView* job = find(snapshot, decision.job_id);
      if (job == nullptr || job->hold_rule.empty() || decision.rule != job->hold_rule)
        rules.insert({decision.kind, decision.rule});
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
    check_caps(snapshot, parameters, decisions);
    for (const Decision& decision : decisions)
      if (decision.kind == DecisionKind::kShrink) check_enough(snapshot, decision.for_job, freed);
    if (::testing::Test::HasFatalFailure()) return;
  }
  for (const DecisionKind kind : {DecisionKind::kGrow, DecisionKind::kRefuseGrow,
                                  DecisionKind::kShrink, DecisionKind::kAbortReclaim})
    EXPECT_GT(seen[kind], 500) << decision_kind_name(kind) << ": the snapshots must reach it";
  for (const DecisionRule& rule : kDecisionRules)
    EXPECT_EQ(rules.erase({rule.kind, std::string(rule.name)}), 1u)
        << decision_kind_name(rule.kind) << ", " << rule.name << " is listed and never decided";
  for (const auto& [kind, rule] : rules)
    ADD_FAILURE() << decision_kind_name(kind) << ", " << rule << " is not in kDecisionRules";
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

// What the store keeps gives the same decisions again.
TEST(PolicyProperty, StoredSnapshotsReplay) {
  for (uint32_t seed = 1; seed <= 5000; ++seed) {
    Random random(seed);
    const Snapshot snapshot = random_snapshot(random);
    const Parameters parameters = random_parameters(random);
    const std::string text = snapshot_to_json(snapshot, parameters).dump();
    const auto stored = snapshot_from_json(*parse_json(text, "snapshot"));
    ASSERT_TRUE(stored.ok()) << stored.status().to_string();
    ASSERT_TRUE(equal(decide(snapshot, parameters), decide(stored->snapshot, stored->parameters)))
        << "seed " << seed;
    ASSERT_EQ(snapshot_to_json(stored->snapshot, stored->parameters).dump(), text);
  }
}

TEST(SnapshotJson, NoSnapshotIsRefused) {
  for (const char* text : {"{}", "[]", "null", R"({"now": 1})"})
    EXPECT_EQ(snapshot_from_json(*parse_json(text, "snapshot")).status().code(),
              StatusCode::kInvalidArgument);
  Json json = snapshot_to_json(empty_snapshot(), {});
  json["parameters"]["gate"] = "golden";
  EXPECT_THAT(snapshot_from_json(json).status().message(), ::testing::HasSubstr("golden"));
}

// Whoever is first in the queue and could start with what is idle can start after all growths too;
// where the queue must be empty nobody grows beside it.
TEST(PolicyProperty, NoGrowthTakesWhatAWaitingJobCouldStartWith) {
  int startable = 0, growths_beside = 0;
  for (uint32_t seed = 1; seed <= 20'000; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Random random(seed);
    const Snapshot snapshot = random_snapshot(random);
    const Parameters parameters = random_parameters(random);
    std::map<std::string, int> taken_on;
    for (const Decision& decision : decide(snapshot, parameters))
      for (const NodeOffer& take : decision.take) taken_on[take.node] += take.gpus;
    if (parameters.require_empty_queue && !snapshot.waiting.empty()) {
      ASSERT_TRUE(taken_on.empty());
    }
    const auto fits = [](const WaitingJob& job, std::map<std::string, int> taken) {
      int nodes = 0, gpus = 0;
      for (const NodeOffer& offer : job.offers) {
        const int free = offer.gpus - taken[offer.node];
        if (free >= std::max(1, job.gpus_per_node)) ++nodes, gpus += free;
      }
      return nodes >= job.nodes && gpus >= job.gpus;
    };
    if (snapshot.waiting.empty() || !fits(snapshot.waiting[0], {})) continue;
    ASSERT_TRUE(fits(snapshot.waiting[0], taken_on));
    ++startable;
    growths_beside += taken_on.empty() ? 0 : 1;
  }
  EXPECT_GT(startable, 1000);
  EXPECT_GT(growths_beside, 100);
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
