// SPDX-License-Identifier: MIT
// What went wrong: the agent writes request.json when its controller answers. A trainer whose
// profile was complete before that gave up on the scale table for good, so a job that started
// while the controller was away or slow never grew.
#include "tests/trainer/run/trainer_fixture.h"

namespace flextrain::trainer {
namespace {

TEST_F(TrainerTest, ScaleTableComesWhenTheAgentsBoundsComeLate) {
  write_job(path("job"));
  const std::string control = path("control");
  ASSERT_TRUE(make_directories(control).ok());
  ::setenv("FLEXTRAIN_CONTROL_DIR", control.c_str(), 1);
  ChildProcess child(path("job"), mpirun(0) +
                                      " train job.toml --set training.steps=100000 "
                                      "--set output.min_step_seconds=0.02");
  ::unsetenv("FLEXTRAIN_CONTROL_DIR");
  // The profile is complete, and no bounds are there.
  ASSERT_TRUE(wait_until(kDeadline, [&] {
    return std::filesystem::exists(control + "/profile.json");
  })) << child.output();
  EXPECT_FALSE(std::filesystem::exists(control + "/scale_table.json"));
  ASSERT_TRUE(write_file_atomically(control + "/request.json",
                                    R"({"max_gpus": 4, "elastic_mode": "dp+pp",
                                        "device_type": "", "memory_limit_bytes": 0})")
                  .ok());
  EXPECT_TRUE(wait_until(kDeadline, [&] {
    return std::filesystem::exists(control + "/scale_table.json");
  })) << child.output();
  child.signal(SIGUSR1);
  EXPECT_EQ(child.wait(kDeadline), 85) << child.output();
}

}  // namespace
}  // namespace flextrain::trainer
