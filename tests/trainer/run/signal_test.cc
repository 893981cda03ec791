// SPDX-License-Identifier: MIT
#include "tests/trainer/run/trainer_fixture.h"

namespace flextrain::trainer {
namespace {

using testing::HasSubstr;

class SignalTest : public TrainerTest {
 protected:
  static constexpr const char* kLong =
      "train job.toml --set training.steps=100000 --set output.min_step_seconds=0.05";
  // Exit code 85, the last step is the checkpoint's, and there is just that one.
  void expect_checkpointed(ChildProcess& child) {
    ASSERT_EQ(child.wait(kDeadline), 85) << child.output();
    const std::string name = fmt::format("step-{}", last_step("job"));
    EXPECT_EQ(checkpoint_names("job"), std::vector<std::string>{name}) << child.output();
    EXPECT_EQ(*read_file(path("job/checkpoints/latest")), name + "\n");
    EXPECT_EQ(digest("job").size(), 33u);
  }
};

TEST_F(SignalTest, Usr1TwiceThroughMpirun) {
  write_job(path("job"));
  ChildProcess child(path("job"), mpirun(3) + " " + kLong);
  ASSERT_TRUE(wait_until(kDeadline, [&] { return last_step("job") >= 3; })) << child.output();
  child.signal(SIGUSR1);
  child.signal(SIGUSR1);
  // And once more while it saves or leaves.
  wait_until(kDeadline, [&] { return !checkpoint_names("job").empty() || child.ended(); });
  if (!child.ended()) child.signal(SIGUSR1);
  expect_checkpointed(child);
}

// Only one rank, not rank 0, hears of it: all stop at the same step.
TEST_F(SignalTest, TermOfOneRankStopsAll) {
  write_job(path("job"));
  ChildProcess child(path("job"), mpirun(3) + " " + kLong);
  ASSERT_TRUE(wait_until(kDeadline, [&] { return last_step("job") >= 3; })) << child.output();
  const std::vector<pid_t> ranks = child.children();
  ASSERT_EQ(ranks.size(), 3u);
  ::kill(ranks[2], SIGTERM);
  expect_checkpointed(child);
}

TEST_F(SignalTest, WithoutMpirun) {
  write_job(path("job"));
  ChildProcess child(path("job"), mpirun(0) + " " + kLong);
  ASSERT_TRUE(wait_until(kDeadline, [&] { return last_step("job") >= 2; })) << child.output();
  child.signal(SIGUSR1);
  expect_checkpointed(child);
}

// A signal before the first step is kept, not fatal.
TEST_F(SignalTest, EarlySignalIsKept) {
  write_job(path("job"));
  ChildProcess child(path("job"), mpirun(0) + " " + kLong);
  ASSERT_TRUE(wait_until(kDeadline, [&] {
    // From the moment that the process shows it as blocked.
    std::ifstream status("/proc/" + std::to_string(child.pid()) + "/status");
    for (std::string line; std::getline(status, line);) {
      if (line.rfind("SigBlk:", 0) == 0) {
        const uint64_t blocked = std::stoull(line.substr(8), nullptr, 16);
        return (blocked >> (SIGUSR1 - 1) & 1) != 0;
      }
    }
    return false;
  }));
  child.signal(SIGUSR1);
  expect_checkpointed(child);
  EXPECT_LE(last_step("job"), 2);
}

// A killed rank takes the job down at once, and it continues from the last checkpoint.
TEST_F(SignalTest, KilledRankEndsTheJobPromptly) {
  write_job(path("job"));
  const std::string often = " --set checkpoint.every_steps=2";
  {
    ChildProcess child(path("job"), mpirun(3) + " " + kLong + often);
    ASSERT_TRUE(wait_until(kDeadline, [&] { return last_step("job") >= 5; })) << child.output();
    ::kill(child.children().at(1), SIGKILL);
    const int code = child.wait(10);
    EXPECT_GT(code, 0) << child.output();
    EXPECT_NE(code, 85);
    EXPECT_NE(code, 78);
  }
  const int64_t reached = last_step("job");
  ASSERT_EQ(train("job", 2, fmt::format("--set training.steps={}", reached + 2)), 0) << output_;
  EXPECT_THAT(output_, HasSubstr("resuming from 'checkpoints/step-"));
  losses("job");  // checks that every step is there once
  EXPECT_EQ(last_step("job"), reached + 2);
}

}  // namespace
}  // namespace flextrain::trainer
