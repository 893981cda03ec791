// SPDX-License-Identifier: MIT
// What a job's sizes have measured outlives a restart, and nothing else is taken for it.
#include "trainer/run/measured_steps.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <filesystem>

#include "base/file.h"
#include "tests/trainer/temp_folder.h"
#include "trainer/run/known_profiles.h"
#include "trainer/run/profile_report.h"

namespace flextrain::trainer {
namespace {

class MeasuredSteps : public TempFolder {
 protected:
  MeasuredSteps() { config_.output_dir = path(""); }
  std::vector<std::pair<int, double>> stored(const TrainConfig& config) const {
    std::vector<std::pair<int, double>> pairs;
    for (const auto& step : read_measured_steps(config)) {
      pairs.emplace_back(step.gpus, step.step_seconds);
    }
    return pairs;
  }
  TrainConfig config_;
};

TEST_F(MeasuredSteps, AreKeptBySizeForTheSameJob) {
  std::vector<planner::MeasuredStep> steps = read_measured_steps(config_);
  EXPECT_TRUE(steps.empty());
  ASSERT_TRUE(write_measured_step(config_, steps, {4, 0.5}).ok());
  ASSERT_TRUE(write_measured_step(config_, steps, {2, 0.9}).ok());
  ASSERT_TRUE(write_measured_step(config_, steps, {4, 0.4}).ok());
  EXPECT_THAT(stored(config_), testing::ElementsAre(std::pair(2, 0.9), std::pair(4, 0.4)));
  TrainConfig other = config_;
  other.model.hidden *= 2;
  EXPECT_TRUE(stored(other).empty());
  other = config_;
  other.global_batch *= 2;
  EXPECT_TRUE(stored(other).empty());
}

TEST_F(MeasuredSteps, ADamagedFileCountsForNothing) {
  std::vector<planner::MeasuredStep> steps;
  ASSERT_TRUE(write_measured_step(config_, steps, {4, 0.5}).ok());
  std::string text = read_file(path("measured_steps.json"), 1 << 20).value();
  for (const std::string& wrong : {std::string("{"), std::string("[1]"), std::string("")}) {
    ASSERT_TRUE(write_file_atomically(path("measured_steps.json"), wrong).ok());
    EXPECT_TRUE(stored(config_).empty()) << wrong;
  }
  text.replace(text.find("0.5"), 3, "-1");
  ASSERT_TRUE(write_file_atomically(path("measured_steps.json"), text).ok());
  EXPECT_TRUE(stored(config_).empty());
}

TEST_F(MeasuredSteps, ProfilesAreKeptByPlanForTheSameJob) {
  config_.model.layers = 2;
  planner::StepProfile profile;
  profile.layers.resize(static_cast<size_t>(num_layers(config_.model)));
  profile.step_seconds = 0.5;
  profile.steps = 2;
  EXPECT_FALSE(read_known_profile(config_, "a").has_value());
  ASSERT_TRUE(write_known_profile(config_, "a", profile).ok());
  profile.step_seconds = 0.25;
  ASSERT_TRUE(write_known_profile(config_, "b", profile).ok());
  ASSERT_TRUE(read_known_profile(config_, "a").has_value());
  EXPECT_EQ(read_known_profile(config_, "a")->step_seconds, 0.5);
  EXPECT_EQ(read_known_profile(config_, "b")->step_seconds, 0.25);
  EXPECT_FALSE(read_known_profile(config_, "c").has_value());
  TrainConfig other = config_;
  other.model.hidden *= 2;
  EXPECT_FALSE(read_known_profile(other, "a").has_value());
  for (int plan = 0; plan < 100; ++plan) {
    ASSERT_TRUE(write_known_profile(config_, fmt::format("plan-{}", plan), profile).ok());
  }
  EXPECT_TRUE(read_known_profile(config_, "plan-99").has_value());
  EXPECT_LT(std::filesystem::file_size(path("known_profiles.json")), 64u << 10) << "bounded";
  ASSERT_TRUE(write_file_atomically(path("known_profiles.json"), "{\"job\"").ok());
  EXPECT_FALSE(read_known_profile(config_, "plan-99").has_value());
}

// The profile is of two ranks; four were measured before, and took longer than is predicted.
TEST_F(MeasuredSteps, StandInThePlaceOfPredictions) {
  config_.model.layers = 8;
  config_.global_batch = 16;
  planner::StepProfile profile;
  profile.layers.resize(10);
  for (planner::LayerProfile& layer : profile.layers) {
    layer.forward = 0.001, layer.backward = 0.002, layer.static_bytes = 1 << 20;
  }
  profile.pipeline_parallel = 2;
  profile.step_seconds = 0.3;
  planner::RegularLayout layout;
  layout.num_transformer_layers = 8;
  layout.pipeline_parallel = 2;
  layout.global_batch = 16;
  const planner::Plan plan = planner::make_regular_plan(layout).value();
  const auto table =
      report_scale_table(config_, plan, profile, {{4, 0.25}, {2, 9}}, ControlDir(""));
  ASSERT_TRUE(table.ok()) << table.status().to_string();
  ASSERT_TRUE(table->has_value());
  for (const planner::ScaleEntry& entry : (*table)->entries) {
    if (entry.shape.gpus == 2) {
      EXPECT_EQ(entry.step_seconds, 0.3);  // the newest there is
    }
    if (entry.shape.gpus != 4) continue;
    EXPECT_EQ(entry.source, planner::PredictionSource::kMeasured);
    EXPECT_EQ(entry.step_seconds, 0.25);
    EXPECT_LT(entry.predicted_step_seconds, 0.2);
  }
}

}  // namespace
}  // namespace flextrain::trainer
