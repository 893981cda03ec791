// SPDX-License-Identifier: MIT
// It learns, it evaluates, and its profile tells the truth.
#include <cmath>

#include "tests/trainer/run/trainer_fixture.h"

namespace flextrain::trainer {
namespace {

using testing::HasSubstr;

// Budget: 150 steps of 12 x 32 tokens. A model that knows nothing has ln(512) = 6.24.
TEST_F(TrainerTest, LossFallsWellBelowLnV) {
  ASSERT_EQ(train("job", 0, "--set training.steps=150 --set data.eval_every=50"), 0) << output_;
  const std::vector<Json> lines = metrics("job");
  ASSERT_EQ(lines.size(), 150u);
  const double uniform = std::log(512.0);
  EXPECT_NEAR(lines[0]["loss"].get<double>(), uniform, 0.3);
  double last = 0;
  for (size_t i = 140; i < 150; ++i) last += lines[i]["loss"].get<double>() / 10;
  EXPECT_LT(last, uniform - 1.5);
  EXPECT_FALSE(lines[48].contains("eval_loss"));
  ASSERT_TRUE(lines[149].contains("eval_loss"));
  EXPECT_LT(lines[149]["eval_loss"].get<double>(), uniform - 1.2);
  EXPECT_LT(lines[149]["eval_loss"].get<double>(), lines[49]["eval_loss"].get<double>());
}

// Slowing one layer threefold shows in the profile, changes the table and moves layers away from it
// in the next placement, and changes no bit of the training.
TEST_F(TrainerTest, SlowLayerChangesProfileTableAndPlacement) {
  const std::string common = "--set training.steps=14 --set output.profile_steps=12 ";
  ASSERT_EQ(train("even", 0, common), 0) << output_;
  ASSERT_EQ(train("slow", 0, common + "--set injection.slow_layer=2 --set injection.slow_factor=3"),
            0)
      << output_;
  EXPECT_EQ(digest("even"), digest("slow"));
  const auto cost = [&](const std::string& job, size_t layer) {
    const Json profile = *parse_json(*read_file(path(job + "/profile.json")), "profile");
    const Json& entry = profile["layers"][layer];
    return entry["forward"].get<double>() + entry["backward"].get<double>();
  };
  // Against a neighbour of the same run: the machine's load cancels out.
  const double even = cost("even", 2) / cost("even", 4), slow = cost("slow", 2) / cost("slow", 4);
  EXPECT_GT(slow / even, 2);
  EXPECT_LT(slow / even, 5);
  EXPECT_NE(*read_file(path("even/scale_table.json")), *read_file(path("slow/scale_table.json")));

  // Layers that share a stage with layer 2, in the Plan for 2 stages: 1-4 | 5-7 when all are alike
  // (the head weighs half a layer), 1-3 | 4-7 when layer 2 weighs three.
  const auto companions = [&](const std::string& job) {
    EXPECT_EQ(run(job, 0, "plan job.toml --gpus 2 --set parallel.pipeline_parallel=2 -o next.json"),
              0)
        << output_;
    EXPECT_THAT(output_, HasSubstr("tokens/s"));
    const Json plan = *parse_json(*read_file(path(job + "/next.json")), "plan");
    int count = 0;
    for (const Json& stage : plan["pipelines"][0]["stages"]) {
      std::vector<int> layers;
      for (const Json& chunk : stage["chunks"]) {
        for (const Json& layer : chunk) {
          if (layer.get<int>() > 0) layers.push_back(layer.get<int>());
        }
      }
      if (std::find(layers.begin(), layers.end(), 2) != layers.end()) {
        count = static_cast<int>(layers.size());
      }
    }
    return count;
  };
  EXPECT_EQ(companions("even"), 4);
  EXPECT_EQ(companions("slow"), 3);
}

TEST_F(TrainerTest, BenchTimesStepsAndTouchesNothing) {
  ASSERT_EQ(run("job", 2, "bench job.toml --steps 3"), 0) << output_;
  EXPECT_THAT(output_, HasSubstr("tokens/s:"));
  EXPECT_TRUE(checkpoint_names("job").empty());
  EXPECT_TRUE(metrics("job").empty());
}

}  // namespace
}  // namespace flextrain::trainer
