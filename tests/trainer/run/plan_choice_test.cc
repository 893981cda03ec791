// SPDX-License-Identifier: MIT
#include "trainer/run/plan_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainer/run/profile_report.h"

namespace flextrain::trainer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

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

TEST(PlanChoice, RecomputationIsTheConfigurations) {
  TrainConfig config = config_of(4, 8, 0, 0);
  for (const auto& [name, expected] : {std::pair("none", planner::Recompute::kNone),
                                       std::pair("selective", planner::Recompute::kSelective),
                                       std::pair("full", planner::Recompute::kFull),
                                       std::pair("auto", planner::Recompute::kNone)}) {
    config.recompute = name;
    const auto plan = default_plan(config, 2);
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    EXPECT_EQ(plan->recompute[0], planner::Recompute::kNone);  // the embedding keeps nothing
    EXPECT_EQ(plan->recompute[1], expected) << name;
  }
}

TEST(PlanChoice, TheTableIsAskedForWhatIsLeftToIt) {
  TrainConfig config = config_of(8, 8, 0, 0);
  planner::ScaleRequest request = scale_request(config, default_plan(config, 2).value(), {});
  EXPECT_THAT(request.schedules, ElementsAre("1f1b"));
  EXPECT_THAT(request.virtual_stages, ElementsAre(1, 1));
  EXPECT_THAT(request.recompute, ElementsAre(planner::Recompute::kNone));
  config.schedule = config.recompute = "auto";
  config.virtual_stages = 0;
  config.memory_cap_bytes = 3000;
  const auto plan = default_plan(config, 2);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  EXPECT_EQ(plan->schedule, "memory-min");  // under a cap, until there is a profile
  EXPECT_EQ(plan->pipelines[0].stages[0].chunks.size(), 1u);
  ElasticBounds bounds;
  bounds.max_gpus = 4;
  request = scale_request(config, *plan, bounds);
  EXPECT_THAT(request.schedules,
              UnorderedElementsAre("1f1b", "gpipe", "memory-min", "zb-1p", "v-shape"));
  EXPECT_THAT(request.virtual_stages, ElementsAre(1, 2, 4));
  EXPECT_EQ(request.recompute.size(), 3u);
  EXPECT_EQ(request.memory_limit_bytes, 3000);
  bounds.memory_limit_bytes = 2000;  // the device has less than the cap
  EXPECT_EQ(scale_request(config, *plan, bounds).memory_limit_bytes, 2000);
}

// Layers of one second forward and two backward; 100 bytes saved by each.
planner::StepProfile even_profile(int layers) {
  planner::StepProfile profile;
  profile.layers.resize(static_cast<size_t>(layers) + 2);
  for (int layer = 1; layer <= layers; ++layer) {
    planner::LayerProfile& of = profile.layers[static_cast<size_t>(layer)];
    of.forward = 1;
    of.backward = 2;
    of.static_bytes = 1000;
    of.activation_bytes = 100;
  }
  return profile;
}

TEST(PlanChoice, AutoTakesTheFastestNamedScheduleThatKeepsTheCap) {
  TrainConfig config = config_of(4, 8, 4, 1);
  config.schedule = "auto";
  planner::Plan plan = default_plan(config, 4).value();
  EXPECT_EQ(plan.schedule, "1f1b");
  ASSERT_TRUE(wants_made_schedule(config, plan));
  const auto best = make_schedule_for(config, even_profile(4), plan);
  ASSERT_TRUE(best.ok()) << best.status().to_string();
  EXPECT_EQ(best->plan.schedule, "zb-1p");
  EXPECT_EQ(best->plan.id, planner::plan_id(best->plan));
  EXPECT_LT(best->makespan, best->given_makespan);
  // What is best stays, and so does what is hardly worse: gpipe is as fast as 1f1b.
  EXPECT_EQ(make_schedule_for(config, even_profile(4), best->plan)->plan.id, best->plan.id);
  // One micro-batch in flight is all that fits.
  config.memory_cap_bytes = 1150;
  EXPECT_EQ(make_schedule_for(config, even_profile(4), plan)->plan.schedule, "memory-min");
  config.memory_cap_bytes = 1050;
  const auto none = make_schedule_for(config, even_profile(4), plan);
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(none.status().message(), HasSubstr("parallel.memory_cap_bytes (1050) is too small"));
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
