// SPDX-License-Identifier: MIT
#include "trainer/run/plan_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace flextrain::trainer {
namespace {

using testing::HasSubstr;

TrainConfig config_of(int layers, int batch, int pp, int dp) {
  TrainConfig config;
  config.model.layers = layers;
  config.global_batch = batch;
  config.pipeline_parallel = pp;
  config.data_parallel = dp;
  return config;
}

TEST(PlanChoice, DegreesAreChosenWhereTheyAreLeftOpen) {
  const struct {
    int layers, batch, pp, dp, ranks, expected_pp, expected_dp;
  } cases[] = {
      {4, 8, 0, 0, 1, 1, 1}, {4, 8, 0, 0, 4, 4, 1}, {4, 8, 0, 0, 8, 4, 2}, {4, 8, 2, 0, 8, 2, 4},
      {4, 8, 0, 2, 4, 2, 2}, {4, 6, 0, 0, 8, 4, 2}, {3, 8, 0, 0, 4, 2, 2}, {7, 12, 0, 0, 5, 5, 1},
      {4, 8, 2, 2, 4, 2, 2}, {4, 6, 0, 0, 6, 3, 2},
  };
  for (const auto& one : cases) {
    const auto plan = default_plan(config_of(one.layers, one.batch, one.pp, one.dp), one.ranks);
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    EXPECT_EQ(static_cast<int>(plan->pipelines.size()), one.expected_dp);
    EXPECT_EQ(static_cast<int>(plan->pipelines[0].stages.size()), one.expected_pp);
  }
}

TEST(PlanChoice, WhatDoesNotFitIsRefused) {
  EXPECT_FALSE(default_plan(config_of(4, 8, 3, 0), 4).ok());
  EXPECT_FALSE(default_plan(config_of(4, 8, 2, 2), 8).ok());
  const auto none = default_plan(config_of(2, 8, 0, 0), 7);
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(none.status().message(), HasSubstr("7 ranks cannot be used"));
}

TEST(PlanChoice, PlansAreCheckedAgainstTheJob) {
  const TrainConfig config = config_of(4, 8, 0, 0);
  const auto plan = default_plan(config, 2);
  ASSERT_TRUE(plan.ok());
  EXPECT_TRUE(check_plan(*plan, config, 2).ok());
  EXPECT_THAT(check_plan(*plan, config, 3).message(), HasSubstr("3 were started"));
  TrainConfig other = config;
  other.model.layers = 5;
  EXPECT_THAT(check_plan(*plan, other, 2).message(), HasSubstr("model.layers is 5"));
  other = config;
  other.global_batch = 16;
  EXPECT_THAT(check_plan(*plan, other, 2).message(), HasSubstr("training.global_batch is 16"));
  other = config;
  other.micro_batch_size = 2;
  EXPECT_THAT(check_plan(*plan, other, 2).message(), HasSubstr("micro_batch_size is 2"));
  other = config;
  other.numerics = planner::Numerics::kFp32;
  EXPECT_THAT(check_plan(*plan, other, 2).message(), HasSubstr("'exact'"));
}

}  // namespace
}  // namespace flextrain::trainer
