// SPDX-License-Identifier: MIT
// What a user does wrong, what a disk does wrong.
#include <sys/resource.h>

#include "tests/trainer/run/trainer_fixture.h"

namespace flextrain::trainer {
namespace {

using testing::HasSubstr;

TEST_F(TrainerTest, UnusableInputGives78WithOneClearLine) {
  const struct {
    int ranks;
    const char* arguments;
    const char* message;
  } cases[] = {
      {0, "train none.toml", "none.toml"},
      {0, "train job.toml --set model.layer=3", "unknown key 'layer'"},
      {0, "train job.toml --set data.text=none.txt", "'none.txt' does not exist"},
      {0, "train job.toml --set model.sequence=1000000", "the data is too short"},
      {0, "train job.toml --set model.vocab=100", "model.vocab is 100"},
      {0, "resume job.toml", "holds no checkpoint"},
      {0, "train job.toml --plan none.json", "none.json"},
      {0, "train", "JOB.toml is required"},
      {0, "trian job.toml", ""},
      {3, "train job.toml --set parallel.pipeline_parallel=2", "3 ranks cannot be used"},
      {2, "train job.toml --set parallel.pipeline_parallel=3 --set parallel.data_parallel=2",
       "but there are 2 ranks"},
      {0, "digest nowhere", "'nowhere' does not exist"},
  };
  for (const auto& one : cases) {
    EXPECT_EQ(run("job", one.ranks, one.arguments), 78) << one.arguments << ": " << output_;
    EXPECT_THAT(output_, HasSubstr(one.message)) << one.arguments;
  }
  EXPECT_EQ(last_step("job"), 0);
}

TEST_F(TrainerTest, FreshAndOtherModelsAreRefusedWhereCheckpointsAre) {
  ASSERT_EQ(train("job", 0, "--fresh"), 0) << output_;
  EXPECT_EQ(train("job", 0, "--fresh --set training.steps=10"), 78);
  EXPECT_THAT(output_, HasSubstr("step-8"));
  EXPECT_EQ(train("job", 2, "--set training.steps=10 --set model.ffn=96"), 78);
  EXPECT_THAT(output_, HasSubstr("model.ffn is 96 here but 64 in the checkpoint"));
  EXPECT_EQ(train("job", 0), 0);
  EXPECT_THAT(output_, HasSubstr("training is complete"));
}

TEST_F(TrainerTest, DamageIsNamedAndThePreviousCheckpointUsed) {
  ASSERT_EQ(train("job", 0, "--set checkpoint.every_steps=4"), 0) << output_;
  const std::string straight = digest("job");
  const std::vector<std::string> expected = losses("job");
  ASSERT_TRUE(write_file_atomically(path("job/checkpoints/step-8/layer-3.safetensors"), "").ok());
  EXPECT_EQ(run("job", 0, "digest checkpoints"), 78);
  EXPECT_THAT(output_, HasSubstr("step-8: layer-3.safetensors has 0 bytes"));
  ASSERT_EQ(run("job", 3, "resume job.toml"), 0) << output_;
  EXPECT_THAT(output_, HasSubstr("damaged checkpoint passed over: checkpoints/step-8"));
  EXPECT_THAT(output_, HasSubstr("layer-3.safetensors has 0 bytes"));
  EXPECT_THAT(output_, HasSubstr("resuming from 'checkpoints/step-4'"));
  EXPECT_EQ(losses("job"), expected);
  EXPECT_EQ(digest("job"), straight);

  for (const char* step : {"step-4", "step-8"}) {
    ASSERT_TRUE(
        std::filesystem::remove(path(fmt::format("job/checkpoints/{}/manifest.json", step))));
  }
  EXPECT_EQ(run("job", 2, "resume job.toml"), 78);
  EXPECT_THAT(output_, HasSubstr("no checkpoint in 'checkpoints' is intact"));
}

// After the first step files may not grow beyond 10 KiB: every save fails as on a full disk, and
// the steps go on.
TEST_F(TrainerTest, FailedSaveLeavesTrainingRunning) {
  write_job(path("job"));
  ChildProcess child(path("job"),
                     fmt::format("sh -c \"trap '' XFSZ; exec {} train job.toml --set "
                                 "checkpoint.every_steps=4 --set output.min_step_seconds=0.2\"",
                                 TRAINER));
  ASSERT_TRUE(wait_until(kDeadline, [&] { return last_step("job") >= 1; })) << child.output();
  const rlimit limit{10 << 10, 10 << 10};
  ASSERT_EQ(::prlimit(child.pid(), RLIMIT_FSIZE, &limit, nullptr), 0);
  EXPECT_EQ(child.wait(kDeadline), 1);
  EXPECT_THAT(child.output(), HasSubstr("cannot save checkpoint step-4"));
  EXPECT_THAT(child.output(), HasSubstr("training goes on"));
  EXPECT_THAT(child.output(), HasSubstr("its end could not be saved"));
  EXPECT_EQ(last_step("job"), 8);
  EXPECT_TRUE(checkpoint_names("job").empty());
}

TEST_F(TrainerTest, DivergenceStopsAndLeavesCheckpointsAlone) {
  ASSERT_EQ(train("job", 0), 0) << output_;
  const std::string before = digest("job");
  // Running again would diverge again: the same code for one rank and for several (it was 1 there).
  for (const int ranks : {0, 2}) {
    const int code = train("job", ranks,
                           "--set training.steps=60 --set optimizer.learning_rate=100 "
                           "--set optimizer.min_learning_rate=100 --set optimizer.weight_decay=100 "
                           "--set optimizer.warmup_samples=0");
    EXPECT_EQ(code, 78) << output_;
  }
  EXPECT_EQ(digest("job"), before);
  EXPECT_EQ(checkpoint_names("job"), std::vector<std::string>{"step-8"});
}

TEST_F(TrainerTest, RetentionAndTimedCheckpoints) {
  ASSERT_EQ(train("job", 2, "--set checkpoint.every_steps=1 --set checkpoint.keep=2"), 0)
      << output_;
  EXPECT_EQ(checkpoint_names("job"), (std::vector<std::string>{"step-7", "step-8"}));
  ASSERT_EQ(train("timed", 2,
                  "--set checkpoint.every_seconds=0.2 --set output.min_step_seconds=0.1 "
                  "--set checkpoint.keep=9"),
            0)
      << output_;
  EXPECT_GE(checkpoint_names("timed").size(), 3u);
  EXPECT_LE(checkpoint_names("timed").size(), 6u);
}

}  // namespace
}  // namespace flextrain::trainer
