// SPDX-License-Identifier: MIT
// What a decision was chosen from.
#include "policy/alternatives.h"

#include "tests/policy/random_snapshot.h"

namespace flextrain::policy {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> fates(const std::vector<EntryAlternative>& alternatives) {
  std::vector<std::string> list;
  for (const EntryAlternative& alternative : alternatives)
    list.push_back(fmt::format("{}:{}", alternative.entry.gpus, alternative.refused_by));
  return list;
}

Snapshot one_job() {
  Snapshot snapshot = empty_snapshot();
  snapshot.elastic = {elastic(1, 4)};
  snapshot.elastic[0].offers = {{"n2", 4}, {"n3", 4}};
  snapshot.idle_gpus = 8;
  return snapshot;
}

TEST(EntryAlternatives, OfAGrowth) {
  const auto alternatives = entry_alternatives(one_job(), no_gate(), 1);
  EXPECT_THAT(fates(alternatives), ElementsAre("8:not-best", "12:", "16:no-idle"));
  EXPECT_TRUE(alternatives[1].weighed);
  EXPECT_DOUBLE_EQ(alternatives[1].speedup, 2.65);
  EXPECT_FALSE(alternatives[2].weighed);
}

TEST(EntryAlternatives, EachWithWhatRefusesIt) {
  Snapshot snapshot = one_job();
  ElasticJobView& job = snapshot.elastic[0];
  job.max_gpus = 12;
  job.table = {{4, 1000}, {6, 990}, {8, 1500}, {10, 1800}, {12, 2000}, {16, 3000}};
  job.offers = {{"n2", 4}, {"n3", 2}};
  EXPECT_THAT(fates(entry_alternatives(snapshot, no_gate(), 1)),
              ElementsAre("6:slower", "8:not-best", "10:", "12:no-idle", "16:at-max"));
  Parameters capped = no_gate();
  capped.user_max_expanded = 4;
  EXPECT_THAT(fates(entry_alternatives(snapshot, capped, 1)),
              ElementsAre("6:slower", "8:", "10:user-cap", "12:no-idle", "16:at-max"));
  job.remaining_seconds = 100;  // at 1.5x 33 s are saved, at 1.8x 44 s
  Parameters guarded = no_gate();
  guarded.default_overhead_seconds = 40;
  EXPECT_THAT(fates(entry_alternatives(snapshot, guarded, 1)),
              ElementsAre("6:slower", "8:guard", "10:", "12:no-idle", "16:at-max"));
  job.remaining_seconds = 1e6;
  snapshot.forecast = steady_arrivals(10'000);
  const auto gated = entry_alternatives(snapshot, {}, 1);
  EXPECT_THAT(fates(gated),
              ElementsAre("6:slower", "8:gate", "10:gate", "12:no-idle", "16:at-max"));
  EXPECT_GT(gated[1].lambda, 0);
  EXPECT_LT(gated[1].value, gated[2].value) << "the faster one breaks even sooner";
}

TEST(EntryAlternatives, NoneWhereNothingWasWeighed) {
  Snapshot snapshot = one_job();
  EXPECT_THAT(entry_alternatives(snapshot, no_gate(), 7), IsEmpty()) << "no such job";
  snapshot.elastic[0].hold_rule = "paused";
  EXPECT_THAT(entry_alternatives(snapshot, no_gate(), 1), IsEmpty());
  snapshot = one_job();
  snapshot.elastic[0].steady = false;
  EXPECT_THAT(entry_alternatives(snapshot, no_gate(), 1), IsEmpty());
}

TEST(VictimAlternatives, InTheOrderInWhichTheyAreAsked) {
  Snapshot snapshot = empty_snapshot();
  for (uint32_t id = 1; id <= 4; ++id) snapshot.elastic.push_back(elastic(id, 4));
  add_companion(snapshot.elastic[0], 11, "n1", 8);
  add_companion(snapshot.elastic[1], 21, "n2", 4);
  add_companion(snapshot.elastic[2], 31, "n3", 4);
  snapshot.elastic[2].saving = true;
  add_companion(snapshot.elastic[3], 41, "n4", 2);
  snapshot.elastic[3].steady = false;
  WaitingJob job;
  job.job_id = 50;
  job.gpus = 4;
  job.usable_nodes = {"n1", "n2", "n3", "n4"};
  snapshot.waiting = {job};
  const auto alternatives = victim_alternatives(snapshot, no_gate(), 50);
  ASSERT_EQ(alternatives.size(), 4u);
  EXPECT_EQ(alternatives[0].job_id, 2u);
  EXPECT_EQ(alternatives[0].gives, 4);
  EXPECT_EQ(alternatives[1].job_id, 1u);
  EXPECT_EQ(alternatives[1].expanded, 8);
  EXPECT_EQ(alternatives[1].gives, 0);
  EXPECT_EQ(alternatives[2].job_id, 3u);
  EXPECT_TRUE(alternatives[2].spared);
  EXPECT_EQ(alternatives[3].job_id, 4u);
  EXPECT_TRUE(alternatives[3].switching);
}

// They agree with the decision.
TEST(Alternatives, AgreeWithWhatWasDecided) {
  int grown = 0, refused = 0, given = 0, aborted = 0;
  for (uint32_t seed = 1; seed <= 5000; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Random random(seed);
    const Snapshot snapshot = random_snapshot(random);
    const Parameters parameters = random_parameters(random);
    for (const Decision& decision : decide(snapshot, parameters)) {
      if (decision.kind == DecisionKind::kShrink || decision.kind == DecisionKind::kAbortReclaim) {
        int gives = 0;
        for (const VictimAlternative& victim :
             victim_alternatives(snapshot, parameters, decision.for_job)) {
          gives += victim.gives;
          if (victim.job_id != decision.job_id) continue;
          ASSERT_EQ(victim.gives, decision.from_gpus - decision.to_gpus);
          ++given;
        }
        if (decision.kind == DecisionKind::kAbortReclaim) {
          ASSERT_EQ(gives, 0);
          ++aborted;
        }
        continue;
      }
      const auto entries = entry_alternatives(snapshot, parameters, decision.job_id);
      for (const EntryAlternative& entry : entries) {
        const bool taken = entry.refused_by.empty();
        ASSERT_EQ(taken,
                  decision.kind == DecisionKind::kGrow && entry.entry.gpus == decision.to_gpus);
        if (taken) ++grown;
        // Of the net benefit any one of those that fail is told.
        if (entry.entry.gpus != decision.to_gpus || taken) continue;
        ASSERT_EQ(entry.refused_by, decision.rule);
        ++refused;
      }
    }
  }
  EXPECT_GT(grown, 500);
  EXPECT_GT(refused, 200);
  EXPECT_GT(given, 200);
  EXPECT_GT(aborted, 100);
}

}  // namespace
}  // namespace flextrain::policy
