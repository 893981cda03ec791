// SPDX-License-Identifier: MIT
// Whole runs of the engine in virtual time.
#include "trainer/emulation/rehearsal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <ctime>

#include "planner/predict.h"
#include "tests/trainer/emulation/rehearsed_job.h"

namespace flextrain::trainer {
namespace {

using ::testing::HasSubstr;

// The floors of the planner's promises: step time within 6 %, memory within 5 %, from a profile of
// three steps of another layout; contention and jitter unknown to it. The whole table, and what is
// reached on average: bench/prediction_bench.cc, docs/prediction.md.
using Layout = RehearsedLayout;
void expect_foretold(const ClusterProfile& cluster, int global_batch, const Layout& base,
                     const std::vector<Layout>& layouts) {
  const TrainConfig config = rehearsed_job(16, global_batch, 2048);
  const planner::Plan base_plan = rehearsed_plan(config, base);
  const auto profiled = rehearse(config, base_plan, cluster, {1, 3});
  ASSERT_TRUE(profiled.ok()) << profiled.status().to_string();
  for (const Layout& layout : layouts) {
    const planner::Plan plan = rehearsed_plan(config, layout);
    const auto check = check_prediction(config, cluster, *profiled, base_plan, plan);
    ASSERT_TRUE(check.ok()) << check.status().to_string();
    EXPECT_LT(std::abs(check->time_error()), 0.06)
        << planner::plan_summary(plan) << ": predicted " << check->predicted_seconds
        << " s, rehearsed " << check->rehearsed_seconds << " s";
    EXPECT_LT(std::abs(check->memory_error()), 0.05)
        << planner::plan_summary(plan) << ": predicted " << check->predicted_bytes << ", rehearsed "
        << check->rehearsed_bytes << " bytes";
  }
}

ClusterProfile noisy_cluster() {
  ClusterProfile cluster;
  cluster.kernel = 0.02, cluster.device = 0.005, cluster.link = 0.05;
  return cluster;
}

TEST(Prediction, OfAHomogeneousClusterKeepsItsFloors) {
  // Two nodes, so that the profile knows both kinds of links.
  ClusterProfile cluster = noisy_cluster();
  cluster.gpus_per_node = cluster.adapters_per_node = 4;
  expect_foretold(cluster, 64, {4, 2, 1, "1f1b"},
                  {{4, 2, 1, "1f1b"},
                   {4, 2, 1, "gpipe"},
                   {4, 2, 1, "memory-min"},
                   {4, 2, 1, "zb-1p"},
                   {4, 1, 1, "1f1b"},
                   {8, 2, 1, "1f1b"},
                   {8, 8, 1, "zb-1p"}});
}

TEST(Prediction, OfAnUnevenClusterKeepsItsFloors) {
  ClusterProfile cluster = noisy_cluster();
  cluster.gpus_per_node = 2, cluster.adapters_per_node = 2;
  cluster.nodes_apart = 2, cluster.speed = 0.8;
  expect_foretold(cluster, 64, {4, 2, 1, "1f1b"},
                  {{4, 2, 1, "1f1b"}, {4, 2, 1, "zb-1p"}, {2, 4, 1, "1f1b"}, {4, 1, 1, "gpipe"}});
}

TEST(Prediction, OfATwoLevelNetworkKeepsItsFloors) {
  ClusterProfile cluster = noisy_cluster();
  cluster.gpus_per_node = 4, cluster.adapters_per_node = 2;
  cluster.nodes_per_switch = 2, cluster.uplink_gb_per_s = 50;
  expect_foretold(cluster, 64, {8, 2, 1, "1f1b"},
                  {{8, 2, 1, "1f1b"}, {8, 2, 1, "zb-1p"}, {8, 1, 1, "1f1b"}, {8, 4, 1, "1f1b"}});
}

// A rank that has a tied head or what MTP adds holds the embedding's or the head's matrix too; what
// the planner counts is what the engine takes, whatever layout was profiled.
TEST(Prediction, CountsTheCopiesOfSharedMatrices) {
  for (const auto& [tied, mtp] :
       {std::pair(false, 0), std::pair(true, 0), std::pair(false, 2), std::pair(true, 2)}) {
    TrainConfig config = rehearsed_job(4, 4, 1024);
    config.model.tied_head = tied;
    config.model.mtp_num_layers = mtp;
    ClusterProfile cluster;
    for (const int measured_pp : {1, 3}) {
      const planner::Plan measured = rehearsed_plan(config, {measured_pp, 1, 1, "1f1b"});
      const auto profiled = rehearse(config, measured, cluster, {1, 1});
      ASSERT_TRUE(profiled.ok()) << profiled.status().to_string();
      for (const int pp : {1, 2, 3, 4}) {
        const planner::Plan plan = rehearsed_plan(config, {pp, 1, 1, "1f1b"});
        const auto run = rehearse(config, plan, cluster, {1, 0});
        const auto prediction = planner::predict(
            profiled->profile, planner::measured_layout(profiled->profile, measured), plan);
        ASSERT_TRUE(run.ok() && prediction.ok()) << prediction.status().to_string();
        const auto of = [](int64_t predicted, int64_t taken) {
          return static_cast<double>(predicted) / static_cast<double>(taken);
        };
        EXPECT_NEAR(of(prediction->fullest_static_bytes, run->peak_static_bytes), 1, 1e-9)
            << "tied " << tied << ", " << planner::plan_summary(plan);
        EXPECT_NEAR(of(prediction->peak_memory_bytes, run->peak_device_bytes), 1, 0.02)
            << "tied " << tied << ", " << planner::plan_summary(plan);
      }
    }
  }
}

// The memory of the actions, the planner's prediction and what the engine takes of its device are
// one: on one chunk a rank they differ by scratch alone.
TEST(Prediction, OfMemoryIsWhatTheActionsHold) {
  const TrainConfig config = rehearsed_job(6, 8, 1024);
  const ClusterProfile cluster;
  for (const char* schedule : {"1f1b", "gpipe", "memory-min", "zb-1p"}) {
    for (const auto again :
         {planner::Recompute::kNone, planner::Recompute::kSelective, planner::Recompute::kFull}) {
      const planner::Plan plan = rehearsed_plan(config, {3, 1, 1, schedule, again});
      const auto run = rehearse(config, plan, cluster, {1, 1});
      ASSERT_TRUE(run.ok()) << run.status().to_string();
      const auto prediction = planner::predict(run->profile, {}, plan);
      ASSERT_TRUE(prediction.ok()) << prediction.status().to_string();
      int64_t peak = 0, free = 0;
      for (const auto& trace : run->traces) {
        for (const TraceEvent& event : trace) peak = std::max(peak, event.memory_after);
        free = std::max(free, trace.back().memory_after);
      }
      EXPECT_EQ(free, run->peak_static_bytes);
      EXPECT_LE(peak, run->peak_device_bytes);
      EXPECT_LE(peak, prediction->peak_memory_bytes);
      // Scratch at most: of a block, of an end, of a gradient, of one layer's recomputation.
      int64_t working = 0, gradient = 0, again_bytes = 0;
      for (const planner::LayerProfile& layer : run->profile.layers) {
        working = std::max(working, layer.working_bytes);
        gradient = std::max(gradient, layer.gradient_scratch_bytes);
        again_bytes = std::max(again_bytes, layer.activation_bytes);
      }
      const int64_t scratch = 2 * working + gradient + again_bytes;
      EXPECT_GE(peak, prediction->peak_memory_bytes - scratch) << planner::plan_summary(plan);
    }
  }
}

// What is measured of a layer does not depend on the schedule that ran: the weight gradients are
// known apart of every layer that has some, MTP blocks among them, whether the backward was split
// or not, and what selective recomputation would do again of every block.
TEST(Prediction, TheBackwardIsKnownInItsPartsWhateverRan) {
  TrainConfig config = rehearsed_job(4, 6, 1024);
  config.model.mtp_num_layers = 2;
  const ClusterProfile cluster;
  const planner::Plan whole = rehearsed_plan(config, {3, 1, 1, "1f1b"});
  const auto together = rehearse(config, whole, cluster, {1, 1});
  const auto apart = rehearse(config, rehearsed_plan(config, {3, 1, 1, "zb-1p"}), cluster, {1, 1});
  ASSERT_TRUE(together.ok() && apart.ok()) << together.status().to_string();
  for (planner::LayerId layer = 1; layer < planner::num_layers(whole); ++layer) {
    if (!planner::is_block(whole, layer)) continue;
    const planner::LayerProfile& one = together->profile.layers[static_cast<size_t>(layer)];
    const planner::LayerProfile& two = apart->profile.layers[static_cast<size_t>(layer)];
    EXPECT_GT(two.wgrad, 0) << layer;
    EXPECT_NEAR(one.wgrad / two.wgrad, 1, 0.03) << layer;
    EXPECT_NEAR(one.backward / two.backward, 1, 0.03) << layer;
    EXPECT_GT(one.selective_seconds, 0) << layer;
    EXPECT_GT(one.selective_bytes, 0) << layer;
  }
}

TEST(Rehearsal, IsTheSameEveryTimeAndAnotherBySeed) {
  const TrainConfig config = rehearsed_job(8, 16, 2048);
  const planner::Plan plan = rehearsed_plan(config, {4, 2, 1, "1f1b"});
  ClusterProfile cluster;
  cluster.kernel = cluster.link = 0.05;
  const auto first = rehearse(config, plan, cluster);
  const auto again = rehearse(config, plan, cluster);
  cluster.seed = 2;
  const auto other = rehearse(config, plan, cluster);
  ASSERT_TRUE(first.ok() && again.ok() && other.ok()) << first.status().to_string();
  EXPECT_EQ(first->step_seconds, again->step_seconds);
  EXPECT_NE(first->step_seconds, other->step_seconds);
  EXPECT_EQ(first->profile.steps, 3);
  EXPECT_EQ(first->traces.size(), 8u);
  EXPECT_FALSE(first->traces[7].empty());
}

TEST(Rehearsal, MoreDevicesAreFasterAndASlowNodeIsSlower) {
  const TrainConfig config = rehearsed_job(8, 32, 2048);
  ClusterProfile cluster;
  const auto one = rehearse(config, rehearsed_plan(config, {1, 1, 1, "1f1b"}), cluster);
  const auto four = rehearse(config, rehearsed_plan(config, {4, 1, 1, "1f1b"}), cluster);
  cluster.gpus_per_node = 2, cluster.adapters_per_node = 2;
  cluster.nodes_apart = 2, cluster.speed = 0.5;
  const auto uneven = rehearse(config, rehearsed_plan(config, {4, 1, 1, "1f1b"}), cluster);
  ASSERT_TRUE(one.ok() && four.ok() && uneven.ok());
  EXPECT_LT(four->median_step_seconds, one->median_step_seconds / 2.5);
  EXPECT_GT(uneven->median_step_seconds, four->median_step_seconds * 1.5);
}

TEST(Rehearsal, ADeviceThatIsTooSmallSaysSo) {
  const TrainConfig config = rehearsed_job(8, 8, 2048);
  ClusterProfile cluster;
  cluster.memory_gib = 2;
  const auto result = rehearse(config, rehearsed_plan(config, {2, 1, 1, "1f1b"}), cluster);
  EXPECT_EQ(result.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(result.status().message(), HasSubstr("out of device memory"));
}

// 512 ranks in this process. The aim is seconds; the ceiling is for a loaded machine and counts
// this process's work alone.
TEST(Rehearsal, FiveHundredAndTwelveRanks) {
  const TrainConfig config = rehearsed_job(32, 512, 2048);
  const std::clock_t begun = std::clock();
  const auto result =
      rehearse(config, rehearsed_plan(config, {16, 32, 1, "1f1b"}), ClusterProfile{});
  const double seconds = static_cast<double>(std::clock() - begun) / CLOCKS_PER_SEC;
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  EXPECT_EQ(result->traces.size(), 512u);
  EXPECT_LT(seconds, 60);
}

}  // namespace
}  // namespace flextrain::trainer
