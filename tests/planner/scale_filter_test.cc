// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/predict.h"

namespace flextrain::planner {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Entries of 1, 2, … GPUs with the given model and profile times.
std::vector<ScaleEntry> entries(const std::vector<std::pair<double, double>>& times) {
  std::vector<ScaleEntry> result;
  for (const auto& [model, profile] : times) {
    ScaleEntry entry;
    entry.shape.gpus = static_cast<int>(result.size()) + 1;
    entry.model_step_seconds = model;
    entry.step_seconds = profile;
    entry.tokens_per_second = 1000 / profile;
    result.push_back(std::move(entry));
  }
  return result;
}

std::vector<int> kept(const std::vector<ScaleEntry>& entries) {
  std::vector<int> gpus;
  for (const ScaleEntry& entry : entries) {
    EXPECT_EQ(entry.kept, entry.drop_rule.empty());
    if (entry.kept) gpus.push_back(entry.shape.gpus);
  }
  return gpus;
}

TEST(ScaleFilter, KeepsWhatBothPredictionsConfirm) {
  auto table = entries({{8, 8}, {4, 4.4}, {3, 3.2}, {2, 2.4}});
  filter_entries(table, 1, {});
  EXPECT_THAT(kept(table), ElementsAre(1, 2, 3, 4));
}

TEST(ScaleFilter, Rule1OppositeDirections) {
  auto table = entries({{8, 8}, {7, 8.1}, {6, 7.9}});
  filter_entries(table, 1, {});
  EXPECT_THAT(table[1].drop_rule, StartsWith("rule 1: against 1 GPUs"));
  // The comparison is with the previous entry, kept or not: 3 GPUs go down in both.
  EXPECT_THAT(table[2].drop_rule, StartsWith("rule 3"));
}

TEST(ScaleFilter, Rule1IgnoresRounding) {
  auto table = entries({{8, 8}, {8 * (1 + 1e-15), 4}});
  ScaleRequest request;
  request.speedup_tolerance = 10;
  filter_entries(table, 1, request);
  EXPECT_THAT(kept(table), ElementsAre(1, 2));
}

TEST(ScaleFilter, Rule2SpeedUpsDiffer) {
  auto table = entries({{8, 8}, {2, 6}, {1.9, 2.1}});
  filter_entries(table, 1, {});
  EXPECT_THAT(table[1].drop_rule, StartsWith("rule 2: over 1 GPUs"));
  EXPECT_THAT(table[1].drop_rule, HasSubstr("speed-up of 4, the profile 1.333"));
  EXPECT_THAT(kept(table), ElementsAre(1, 3));
}

TEST(ScaleFilter, Rule3GainNotSignificant) {
  auto table = entries({{8, 8}, {7.9, 7.7}, {7.8, 7.5}, {7.7, 7.4}});
  filter_entries(table, 1, {});
  EXPECT_THAT(table[1].drop_rule, StartsWith("rule 3"));
  // Small gains add up against the last kept entry: 8 / 7.5 is over 5 %.
  EXPECT_THAT(kept(table), ElementsAre(1, 3));
  ScaleRequest request;
  request.significant_gain = 0.01;
  filter_entries(table, 1, request);
  EXPECT_THAT(kept(table), ElementsAre(1, 2, 3, 4));
}

TEST(ScaleFilter, TheMeasuredCountIsAlwaysKept) {
  auto table = entries({{8, 8}, {4, 9}, {3, 7.9}, {2, 3}});
  filter_entries(table, 2, {});
  EXPECT_TRUE(table[1].kept);
  // A later entry must beat the best kept one, not only the slow measured one.
  EXPECT_THAT(table[2].drop_rule, StartsWith("rule 3"));
  EXPECT_THAT(kept(table), ElementsAre(1, 2, 4));
}

TEST(ScaleFilter, TheSmallestEntryIsKept) {
  auto table = entries({{8, 8}});
  filter_entries(table, 99, {});
  EXPECT_THAT(kept(table), ElementsAre(1));
  std::vector<ScaleEntry> none;
  filter_entries(none, 1, {});
  EXPECT_TRUE(none.empty());
}

}  // namespace
}  // namespace flextrain::planner
