// SPDX-License-Identifier: MIT
// A machine that becomes slower while a job runs on it.
#include "tests/trainer/run/trainer_fixture.h"

namespace flextrain::trainer {
namespace {

using testing::HasSubstr;

Json json_of(const std::string& path) {
  const auto text = read_file(path);
  if (!text.ok()) return {};
  return parse_json(*text, path).value_or(Json());
}

// From step 30 on every layer takes a millisecond at least, which it never does by itself. The
// entry of the table is named, the profile taken again, the table and what is kept of this size are
// the slow steps'.
TEST_F(TrainerTest, StepsThatDriftFromTheTableAreMeasuredAgain) {
  write_job(path("job"));
  ChildProcess child(path("job"), mpirun(0) +
                                      " train job.toml --set training.steps=1000000 "
                                      "--set training.global_batch=4 --set output.step_window=10 "
                                      "--set injection.layer_seconds=0.001 "
                                      "--set injection.slow_from_step=30");
  // Nine layers, four micro-batches, forward, backward and weight gradient.
  constexpr double kSlowStep = 9 * 4 * 3 * 0.001;
  const auto slow = [&] {
    const Json profile = json_of(path("job/profile.json"));
    if (!profile.is_object()) return false;
    for (const Json& layer : profile["layers"]) {
      if (layer["forward"] < 0.001) return false;
    }
    const Json kept = json_of(path("job/measured_steps.json"));
    return kept.is_object() && kept["steps"][0][0] == 1 && kept["steps"][0][1] >= kSlowStep;
  };
  ASSERT_TRUE(wait_until(150, slow)) << child.output();
  child.signal(SIGUSR1);
  ASSERT_EQ(child.wait(kDeadline), 85) << child.output();
  EXPECT_THAT(child.output(),
              HasSubstr("the profile is taken again: the entry of 1 GPUs is stale: steps take"));
  const Json profile = json_of(path("job/profile.json"));
  const Json table = json_of(path("job/scale_table.json"));
  ASSERT_TRUE(profile.is_object() && table.is_object());
  EXPECT_GE(profile["step_seconds"], kSlowStep);
  for (const Json& entry : table["entries"]) {
    if (entry["gpus"] != 1) continue;
    EXPECT_EQ(entry["source"], "measured");
    EXPECT_EQ(entry["step_seconds"], profile["step_seconds"]);
  }
  // By the profile of before, two GPUs would have taken far less.
  for (const Json& entry : table["entries"]) {
    if (entry["gpus"] != 2) continue;
    EXPECT_GE(entry["step_seconds"], kSlowStep / 3);
  }
}

}  // namespace
}  // namespace flextrain::trainer
