// SPDX-License-Identifier: MIT
// Preemptive scale-down.
#include "policy/victims.h"
#include "tests/policy/builders.h"

namespace flextrain::policy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

WaitingJob waiting(uint32_t id, int nodes, int gpus_per_node, std::vector<std::string> usable,
                   std::vector<NodeOffer> offers = {}) {
  WaitingJob job;
  job.job_id = id;
  job.nodes = nodes;
  job.gpus_per_node = gpus_per_node;
  job.gpus = nodes * gpus_per_node;
  job.usable_nodes = std::move(usable);
  job.offers = std::move(offers);
  return job;
}

std::vector<Decision> of_kind(const std::vector<Decision>& decisions, DecisionKind kind) {
  std::vector<Decision> found;
  for (const Decision& decision : decisions)
    if (decision.kind == kind) found.push_back(decision);
  return found;
}

std::vector<Decision> shrinks(const Snapshot& snapshot) {
  return of_kind(decide(snapshot, no_gate()), DecisionKind::kShrink);
}
std::vector<Decision> aborts(const Snapshot& snapshot) {
  return of_kind(decide(snapshot, no_gate()), DecisionKind::kAbortReclaim);
}

// Job 1 (base 4) on n1 with companions of 4 on n2 and n3; job 2 (base 4) with one of 8 on n4.
// Gains: 2.65x at 12 GPUs for both unless changed.
Snapshot two_grown_jobs() {
  Snapshot snapshot = empty_snapshot();
  snapshot.elastic = {elastic(1, 4), elastic(2, 4)};
  add_companion(snapshot.elastic[0], 12, "n2", 4);
  add_companion(snapshot.elastic[0], 13, "n3", 4);
  add_companion(snapshot.elastic[1], 24, "n4", 8);
  return snapshot;
}

TEST(Reclaim, NothingWaitsNothingShrinks) { EXPECT_TRUE(shrinks(two_grown_jobs()).empty()); }

TEST(Reclaim, JobThatFitsIdleStartsByItself) {
  Snapshot snapshot = two_grown_jobs();
  snapshot.waiting = {waiting(50, 1, 4, {"n2", "n5"}, {{"n5", 4}})};
  EXPECT_TRUE(shrinks(snapshot).empty());
  EXPECT_TRUE(aborts(snapshot).empty());
}

TEST(Reclaim, MostExpandedGivesFirst) {
  Snapshot snapshot = two_grown_jobs();
  add_companion(snapshot.elastic[0], 14, "n5", 8);
  snapshot.waiting = {waiting(50, 1, 4, {"n2", "n3", "n4", "n5"})};
  Parameters parameters = no_gate();
  parameters.victims = VictimRule::kMostExpanded;
  const auto decisions = of_kind(decide(snapshot, parameters), DecisionKind::kShrink);
  ASSERT_EQ(decisions.size(), 1u);
  EXPECT_EQ(decisions[0].job_id, 1u);
}

TEST(Reclaim, SmallestExpansionThatSufficesGivesAlone) {
  Snapshot snapshot = two_grown_jobs();
  add_companion(snapshot.elastic[0], 14, "n5", 8);
  snapshot.waiting = {waiting(50, 1, 4, {"n2", "n3", "n4", "n5"})};
  const auto decisions = shrinks(snapshot);
  ASSERT_EQ(decisions.size(), 1u);
  EXPECT_EQ(decisions[0].job_id, 2u);
  EXPECT_EQ(decisions[0].for_job, 50u);
  EXPECT_THAT(decisions[0].give_back, ElementsAre(24));
  EXPECT_EQ(decisions[0].from_gpus, 12);
  EXPECT_EQ(decisions[0].to_gpus, 4);
  EXPECT_THAT(decisions[0].reason, HasSubstr("2.65x"));
}

TEST(Reclaim, WhoeverEndsSoonOrSavesIsSparedWhereOthersSuffice) {
  Snapshot snapshot = two_grown_jobs();
  add_companion(snapshot.elastic[0], 14, "n5", 8);
  snapshot.waiting = {waiting(50, 1, 4, {"n2", "n3", "n4", "n5"})};
  snapshot.elastic[1].remaining_seconds = 120;  // the smallest that would suffice
  ASSERT_EQ(shrinks(snapshot).size(), 1u);
  EXPECT_EQ(shrinks(snapshot)[0].job_id, 1u);
  snapshot.elastic[1].remaining_seconds = 121;
  EXPECT_EQ(shrinks(snapshot)[0].job_id, 2u);
  snapshot.elastic[1].saving = true;
  EXPECT_EQ(shrinks(snapshot)[0].job_id, 1u);
  Parameters parameters = no_gate();
  parameters.spare_ending_seconds = 0;
  EXPECT_EQ(of_kind(decide(snapshot, parameters), DecisionKind::kShrink)[0].job_id, 2u);
  // Only job 2 has what it takes.
  snapshot.waiting = {waiting(50, 1, 8, {"n4"})};
  EXPECT_EQ(shrinks(snapshot)[0].job_id, 2u);
}

TEST(Reclaim, NobodyIsSparedWhereTheOthersDoNotSuffice) {
  std::vector<VictimFacts> victims = {{1, 4, false}, {2, 16, true}, {3, 4, false}};
  EXPECT_THAT(victim_order(VictimRule::kSmallestSufficient, victims, 8), ElementsAre(0, 2, 1));
  EXPECT_THAT(victim_order(VictimRule::kSmallestSufficient, victims, 12), ElementsAre(1, 0, 2));
  EXPECT_FALSE(victims[1].spared);
}

TEST(Reclaim, PartialVictimKeepsTheRest) {
  Snapshot snapshot = two_grown_jobs();
  snapshot.waiting = {waiting(50, 1, 4, {"n2", "n3"})};
  const auto decisions = shrinks(snapshot);
  ASSERT_EQ(decisions.size(), 1u);
  EXPECT_EQ(decisions[0].job_id, 1u);
  EXPECT_EQ(decisions[0].give_back.size(), 1u) << "one companion of 4 is enough";
  EXPECT_EQ(decisions[0].to_gpus, 8);
}

TEST(Reclaim, PartialVictimDropsToAnEntry) {
  Snapshot snapshot = two_grown_jobs();
  snapshot.elastic[0].table = {{4, 1000}, {12, 2650}};  // 8 was filtered out
  snapshot.waiting = {waiting(50, 1, 4, {"n2", "n3"})};
  const auto decisions = shrinks(snapshot);
  ASSERT_EQ(decisions.size(), 1u);
  EXPECT_EQ(decisions[0].to_gpus, 4);
  EXPECT_THAT(decisions[0].give_back, UnorderedElementsAre(12, 13));
}

TEST(Reclaim, CompanionsOnNodesItCannotUseStay) {
  Snapshot snapshot = two_grown_jobs();
  snapshot.waiting = {waiting(50, 1, 8, {"n4"})};
  const auto decisions = shrinks(snapshot);
  ASSERT_EQ(decisions.size(), 1u);
  EXPECT_EQ(decisions[0].job_id, 2u) << "job 1 comes first by id but holds nothing of use";
}

TEST(Reclaim, ShapeCountsNotTheSum) {
  Snapshot snapshot = two_grown_jobs();
  // 8 on one node: n2 and n3 have 4 each, which make 8, but not on one node.
  snapshot.waiting = {waiting(50, 1, 8, {"n2", "n3"})};
  EXPECT_TRUE(shrinks(snapshot).empty());
  ASSERT_EQ(aborts(snapshot).size(), 1u);
  EXPECT_EQ(aborts(snapshot)[0].rule, "not-enough");
  EXPECT_EQ(aborts(snapshot)[0].for_job, 50u);
  // With 4 idle ones on n3 it fits there.
  snapshot.waiting[0].offers = {{"n3", 4}};
  const auto decisions = shrinks(snapshot);
  ASSERT_EQ(decisions.size(), 1u);
  EXPECT_THAT(decisions[0].give_back, ElementsAre(13));
}

TEST(Reclaim, AnySpread) {
  Snapshot snapshot = two_grown_jobs();
  WaitingJob job = waiting(50, 1, 0, {"n2", "n3", "n4", "n5"}, {{"n5", 2}});
  job.gpus = 9;
  snapshot.waiting = {job};
  const auto decisions = shrinks(snapshot);
  ASSERT_EQ(decisions.size(), 1u) << "2 idle + 8 of job 1";
  EXPECT_EQ(decisions[0].job_id, 1u);
  EXPECT_EQ(decisions[0].to_gpus, 4);
}

TEST(Reclaim, SeveralVictims) {
  Snapshot snapshot = two_grown_jobs();
  snapshot.waiting = {waiting(50, 3, 4, {"n2", "n3", "n4"})};
  const auto decisions = shrinks(snapshot);
  ASSERT_EQ(decisions.size(), 2u);
  EXPECT_EQ(decisions[0].to_gpus, 4);
  EXPECT_EQ(decisions[1].to_gpus, 4);
}

TEST(Reclaim, NotEnoughTouchesNobody) {
  Snapshot snapshot = two_grown_jobs();
  snapshot.waiting = {waiting(50, 4, 4, {"n2", "n3", "n4"})};
  EXPECT_TRUE(shrinks(snapshot).empty());
  ASSERT_EQ(aborts(snapshot).size(), 1u);
  EXPECT_EQ(aborts(snapshot)[0].inputs.at("E"), 16);
  EXPECT_EQ(aborts(snapshot)[0].inputs.at("N"), 16);
}

TEST(Reclaim, NoCompanionsNoAbort) {
  Snapshot snapshot = empty_snapshot();
  snapshot.elastic = {elastic(1, 4)};
  snapshot.waiting = {waiting(50, 1, 8, {"n2"})};
  EXPECT_TRUE(aborts(snapshot).empty()) << "there is nothing to decide";
}

TEST(Reclaim, WhatIsOnItsWayBackIsNotAskedForTwice) {
  Snapshot snapshot = two_grown_jobs();
  snapshot.waiting = {waiting(50, 1, 8, {"n2", "n3", "n4"})};
  ElasticJobView& victim = snapshot.elastic[1];
  victim.steady = false;
  victim.companions[0].leaving = true;
  victim.held_gpus = 4;
  EXPECT_TRUE(shrinks(snapshot).empty());
  EXPECT_TRUE(aborts(snapshot).empty());
  // The next waiting job cannot count on the same GPUs.
  snapshot.waiting.push_back(waiting(51, 1, 4, {"n2", "n3", "n4"}));
  const auto decisions = shrinks(snapshot);
  ASSERT_EQ(decisions.size(), 1u);
  EXPECT_EQ(decisions[0].job_id, 1u);
  EXPECT_EQ(decisions[0].for_job, 51u);
}

TEST(Reclaim, JobsThatAreSwitchingAreLeftAlone) {
  Snapshot snapshot = two_grown_jobs();
  snapshot.elastic[1].steady = false;
  snapshot.waiting = {waiting(50, 1, 8, {"n2", "n3", "n4"})};
  EXPECT_TRUE(shrinks(snapshot).empty());
  ASSERT_EQ(aborts(snapshot).size(), 1u);
  EXPECT_EQ(aborts(snapshot)[0].rule, "switch-under-way");
}

TEST(Reclaim, TwoWaitingJobsOneDecisionPerVictim) {
  Snapshot snapshot = two_grown_jobs();
  snapshot.waiting = {waiting(50, 1, 4, {"n2", "n3"}), waiting(51, 1, 4, {"n2", "n3"}),
                      waiting(52, 1, 4, {"n2", "n3"})};
  const auto decisions = decide(snapshot, no_gate());
  const auto shrunk = of_kind(decisions, DecisionKind::kShrink);
  ASSERT_EQ(shrunk.size(), 1u);
  EXPECT_EQ(shrunk[0].to_gpus, 4);
  EXPECT_EQ(shrunk[0].for_job, 50u);
  EXPECT_THAT(shrunk[0].reason, HasSubstr("50, 51"));
  const auto aborted = of_kind(decisions, DecisionKind::kAbortReclaim);
  ASSERT_EQ(aborted.size(), 0u) << "nothing is left that job 52 could have";
}

TEST(Reclaim, ALaterSmallerJobMayReclaim) {
  Snapshot snapshot = two_grown_jobs();
  snapshot.waiting = {waiting(50, 6, 8, {"n2", "n3", "n4"}), waiting(51, 1, 4, {"n2"})};
  EXPECT_EQ(aborts(snapshot).size(), 1u);
  ASSERT_EQ(shrinks(snapshot).size(), 1u);
  EXPECT_EQ(shrinks(snapshot)[0].for_job, 51u);
}

TEST(Reclaim, WithoutATableTheVictimGoesBackToItsBase) {
  Snapshot snapshot = two_grown_jobs();
  snapshot.elastic[0].table.clear();  // a restarted controller that has not heard of it yet
  snapshot.waiting = {waiting(50, 1, 4, {"n2"})};
  const auto decisions = shrinks(snapshot);
  ASSERT_EQ(decisions.size(), 1u);
  EXPECT_EQ(decisions[0].to_gpus, 4);
}

}  // namespace
}  // namespace flextrain::policy
