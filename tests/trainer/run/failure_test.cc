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
      {0, "train job.toml --set data.text= --set data.tokens=", "no training data: set data.text"},
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
                     fmt::format("sh -c \"exec {} train job.toml --set "
                                 "checkpoint.every_steps=4 --set output.min_step_seconds=0.2\"",
                                 TRAINER));
  ASSERT_TRUE(wait_until(kDeadline, [&] { return last_step("job") >= 1; })) << child.output();
  const rlimit limit{10 << 10, 10 << 10};
  ASSERT_EQ(::prlimit(child.pid(), RLIMIT_FSIZE, &limit, nullptr), 0);
  EXPECT_EQ(child.wait(kDeadline), 74);
  EXPECT_THAT(child.output(), HasSubstr("cannot save checkpoint step-4"));
  EXPECT_THAT(child.output(), HasSubstr("training goes on"));
  EXPECT_THAT(child.output(), HasSubstr("its end could not be saved"));
  EXPECT_EQ(last_step("job"), 8);
  EXPECT_TRUE(checkpoint_names("job").empty());
}

// The same at a stop signal: without an agent there is a code for it, with one it decides.
TEST_F(TrainerTest, AStopThatCannotBeSaved) {
  for (const bool agent : {false, true}) {
    const std::string job = agent ? "with" : "without", control = path(job) + "/control";
    write_job(path(job));
    ASSERT_TRUE(make_directories(control).ok());
    ChildProcess child(
        path(job),
        fmt::format("sh -c \"{} exec {} train job.toml --set "
                    "training.steps=1000 --set output.min_step_seconds=0.3\"",
                    agent ? "export FLEXTRAIN_CONTROL_DIR=" + control + ";" : "", TRAINER));
    ASSERT_TRUE(wait_until(kDeadline, [&] { return last_step(job) >= 1; })) << child.output();
    rlimit limit{20 << 10, RLIM_INFINITY};
    ASSERT_EQ(::prlimit(child.pid(), RLIMIT_FSIZE, &limit, nullptr), 0);
    child.signal(SIGUSR1);
    if (!agent) {
      EXPECT_EQ(child.wait(kDeadline), 74) << child.output();
      EXPECT_THAT(child.output(), HasSubstr("the last checkpoint stands"));
      continue;
    }
    const auto phases = [&] { return read_file(control + "/phases.jsonl").value_or(""); };
    ASSERT_TRUE(wait_until(kDeadline, [&] {
      return phases().find("\"save_failed\"") != std::string::npos;
    })) << child.output();
    EXPECT_THAT(phases(), HasSubstr("File too large"));
    const int64_t step = last_step(job);
    ASSERT_TRUE(wait_until(kDeadline, [&] { return last_step(job) >= step + 2; })) << "it goes on";
    limit.rlim_cur = RLIM_INFINITY;
    ASSERT_EQ(::prlimit(child.pid(), RLIMIT_FSIZE, &limit, nullptr), 0);
    child.signal(SIGUSR1);
    EXPECT_EQ(child.wait(kDeadline), 85) << child.output();
    EXPECT_THAT(phases(), HasSubstr("\"saving\""));
    EXPECT_THAT(phases(), HasSubstr("\"save\""));
    EXPECT_EQ(checkpoint_names(job),
              std::vector<std::string>{fmt::format("step-{}", last_step(job))});
  }
}

// A checkpoint directory that could not be written at a (re)launch was taken for a wrong
// configuration (exit code 78, never tried again): a file system that became read-only during a
// switch ended the job. A file in the way stands for it: as root no mode would do.
TEST_F(TrainerTest, AStartWaitsForTheStorageOfARunThatWasThereBefore) {
  ASSERT_EQ(train("job", 0, "--set training.steps=4"), 0) << output_;
  const std::string lock = path("job/checkpoints/.lock");
  std::filesystem::rename(lock, lock + ".away");
  ASSERT_TRUE(make_directories(lock).ok());
  ChildProcess child(path("job"), mpirun(0) + " train job.toml");
  ASSERT_TRUE(wait_until(kDeadline, [&] {
    return child.output().find("waiting until it can be written") != std::string::npos;
  })) << child.output();
  std::filesystem::remove(lock);
  std::filesystem::rename(lock + ".away", lock);
  EXPECT_EQ(child.wait(kDeadline), 0) << child.output();
  EXPECT_THAT(child.output(), HasSubstr("resuming from 'checkpoints/step-4'"));
  EXPECT_EQ(last_step("job"), 8);

  // A signal does not wait with it: the last checkpoint stands.
  std::filesystem::rename(lock, lock + ".away");
  ASSERT_TRUE(make_directories(lock).ok());
  std::filesystem::remove(path("job/output.log"));  // it says what is waited for below
  ChildProcess told(path("job"), mpirun(0) + " train job.toml --set training.steps=9");
  ASSERT_TRUE(wait_until(kDeadline, [&] {
    return told.output().find("waiting until it can be written") != std::string::npos;
  })) << told.output();
  told.signal(SIGUSR1);
  EXPECT_EQ(told.wait(kDeadline), 85) << told.output();
}

// Periodic saves fail on every rank: one line, not one per rank; the next interval saves.
TEST_F(TrainerTest, AFailedPeriodicSaveIsOneLineAndTriedAtTheNextInterval) {
  write_job(path("job"));
  // A file where the temporary folders would be made: as root no mode would do.
  const std::string dir = path("job") + "/checkpoints";
  ChildProcess child(path("job"), mpirun(2) +
                                      " train job.toml --set training.steps=9 --set "
                                      "checkpoint.every_steps=3 --set "
                                      "output.min_step_seconds=0.5");
  ASSERT_TRUE(wait_until(kDeadline, [&] { return last_step("job") >= 1; })) << child.output();
  std::filesystem::rename(dir, dir + ".away");
  ASSERT_TRUE(write_file_atomically(dir, "in the way").ok());
  ASSERT_TRUE(wait_until(kDeadline, [&] { return last_step("job") >= 4; })) << child.output();
  std::filesystem::remove(dir);
  std::filesystem::rename(dir + ".away", dir);
  EXPECT_EQ(child.wait(kDeadline), 0) << child.output();
  const std::string output = child.output();
  const std::string line = "cannot save checkpoint step-3";
  EXPECT_NE(output.find(line), std::string::npos) << output;
  EXPECT_EQ(output.find(line), output.rfind(line)) << output;
  EXPECT_EQ(checkpoint_names("job"), (std::vector<std::string>{"step-6", "step-9"}));
  EXPECT_EQ(losses("job").size(), 9u);
}

TEST_F(TrainerTest, MetricsThatCannotBeWrittenStopNothing) {
  write_job(path("job"));
  const std::string metrics_path = path("job") + "/metrics.jsonl";
  ASSERT_TRUE(make_directories(metrics_path).ok());
  ChildProcess child(path("job"), std::string(TRAINER) +
                                      " train job.toml --set training.steps=40 --set "
                                      "output.min_step_seconds=0.4");
  const std::string warning = "training goes on, the lines are kept";
  ASSERT_TRUE(wait_until(kDeadline, [&] {
    return child.output().find(warning) != std::string::npos;
  })) << child.output();
  std::filesystem::remove(metrics_path);
  EXPECT_EQ(child.wait(kDeadline), 0) << child.output();
  EXPECT_EQ(child.output().find(warning), child.output().rfind(warning)) << "one warning";
  EXPECT_THAT(child.output(), HasSubstr("no line is missing"));
  EXPECT_EQ(losses("job").size(), 40u);
}

TEST_F(TrainerTest, ALogThatCannotBeWrittenStopsNothing) {
  write_job(path("job"));
  ChildProcess child(path("job"),
                     fmt::format("sh -c \"exec {} train job.toml >/dev/full 2>&1\"", TRAINER));
  EXPECT_EQ(child.wait(kDeadline), 0);
  EXPECT_EQ(last_step("job"), 8);
}

TEST_F(TrainerTest, InjectedTimes) {
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_EQ(train("job", 0,
                  "--set training.steps=1 --set injection.init_seconds=0.7 --set "
                  "injection.save_seconds=0.8"),
            0)
      << output_;
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(1500));
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
