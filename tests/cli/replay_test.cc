// SPDX-License-Identifier: MIT
#include "cli/replay.h"

#include <gmock/gmock.h>

#include "cli/app.h"
#include "policy/snapshot_json.h"
#include "tests/cli/fake_environment.h"
#include "tests/policy/random_snapshot.h"

namespace flextrain::cli {
namespace {

using ::testing::HasSubstr;

// What the controller answers for a decision.
Json stored_row(const policy::Snapshot& snapshot, const policy::Parameters& parameters,
                const policy::Decision& decision) {
  Json take = Json::array();
  for (const policy::NodeOffer& offer : decision.take)
    take.push_back({{"node", offer.node}, {"gpus", offer.gpus}});
  const Json row = {{"id", 42},
                    {"job_id", decision.job_id},
                    {"for_job", decision.for_job},
                    {"kind", policy::decision_kind_name(decision.kind)},
                    {"rule", decision.rule},
                    {"reason", decision.reason},
                    {"formula", decision.formula},
                    {"inputs", decision.inputs},
                    {"from_gpus", decision.from_gpus},
                    {"to_gpus", decision.to_gpus},
                    {"take", take},
                    {"give_back", decision.give_back},
                    {"snapshot", policy::snapshot_to_json(snapshot, parameters)}};
  return *parse_json(row.dump(), "row");
}

// Every stored decision replays to itself.
TEST(Replay, RandomDecisions) {
  int replayed = 0;
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    policy::Random random(seed);
    const policy::Snapshot snapshot = policy::random_snapshot(random);
    const policy::Parameters parameters = policy::random_parameters(random);
    for (const policy::Decision& decision : policy::decide(snapshot, parameters)) {
      const auto result = replay_decision(stored_row(snapshot, parameters, decision));
      ASSERT_TRUE(result.ok()) << result.status().to_string();
      ASSERT_TRUE(result->same) << "seed " << seed << result->text;
      ++replayed;
    }
  }
  EXPECT_GT(replayed, 300);
}

policy::Snapshot one_job() {
  policy::Snapshot snapshot = policy::empty_snapshot();
  snapshot.elastic = {policy::elastic(7, 4)};
  snapshot.elastic[0].offers = {{"n3", 8}};
  snapshot.elastic[0].grow_overhead_seconds = 300;
  snapshot.idle_gpus = 8;
  snapshot.forecast = policy::steady_arrivals(30);
  return snapshot;
}

TEST(Replay, TellsWhatDiffers) {
  const policy::Snapshot snapshot = one_job();
  const policy::Decision decision = policy::decide(snapshot, {}).front();
  Json row = stored_row(snapshot, {}, decision);
  row["snapshot"]["forecast"]["per_second"] = {1.0};  // the forecast is read, too
  const auto result = replay_decision(row);
  ASSERT_TRUE(result.ok());
  EXPECT_FALSE(result->same);
  EXPECT_THAT(result->text, HasSubstr("kind: stored grow, now refuse"));
  row["job_id"] = 8;
  EXPECT_THAT(replay_decision(row)->text, HasSubstr("decides nothing"));
}

TEST(Replay, WhatCannotBeReplayed) {
  const policy::Snapshot snapshot = one_job();
  Json row = stored_row(snapshot, {}, policy::decide(snapshot, {}).front());
  Json lease = row, old = row, hidden = row;
  lease["rule"] = "lease-end";
  old["snapshot"].erase("parameters");
  hidden["snapshot"] = nullptr;
  EXPECT_THAT(replay_decision(lease).status().message(), HasSubstr("not made by the policy"));
  EXPECT_THAT(replay_decision(old).status().message(), HasSubstr("another release"));
  EXPECT_THAT(replay_decision(hidden).status().message(), HasSubstr("only root and SlurmUser"));
}

TEST(Replay, OnTheCommandLine) {
  FakeEnvironment environment;
  const policy::Snapshot snapshot = one_job();
  Json row = stored_row(snapshot, {}, policy::decide(snapshot, {}).front());
  environment.answers["explain"] = {{"rows", {row}}};
  const AppResult same = run_sflex({"explain", "42", "--replay"}, environment);
  EXPECT_EQ(same.exit_code, 0);
  EXPECT_THAT(same.out, HasSubstr("decides the same again"));
  row["to_gpus"] = 8;
  environment.answers["explain"] = {{"rows", {row}}};
  const AppResult other = run_sflex({"explain", "42", "--replay"}, environment);
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_THAT(other.out, HasSubstr("to_gpus: stored 8, now 12"));
  row["snapshot"] = nullptr;
  environment.answers["explain"] = {{"rows", {row}}};
  EXPECT_EQ(run_sflex({"explain", "42", "--replay"}, environment).exit_code, 1);
}

}  // namespace
}  // namespace flextrain::cli
