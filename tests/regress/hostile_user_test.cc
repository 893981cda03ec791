// SPDX-License-Identifier: MIT
// What went wrong, each found by using the trainer badly on purpose:
// - Two trainers on one checkpoint directory removed each other's saves in progress; two on one
//   output.dir lost lines of metrics.jsonl.
// - A checkpoint directory that cannot be written was noticed at the first save, or only at the
// end.
// - A full disk under metrics.jsonl ended the training, with a wrong reason and half a line.
// - A copy of a checkpoint under a higher step's name was resumed from at every start.
// - A checkpoint without permission counted as damaged and was trained over.
// - With stdout closed, messages went into whatever file got its number; results printed to a full
//   disk counted as success; a reader of the log that left took the training along.
// - Paths that are no UTF-8 ended in an exception of the JSON library and MPI_Abort.
// - Without PATH (or ssh) a single process did not start: Open MPI wanted to start a daemon.
#include <sys/stat.h>

#include "tests/trainer/run/trainer_fixture.h"

namespace flextrain::trainer {
namespace {

using ::testing::HasSubstr;

class HostileUser : public TrainerTest {
 protected:
  // Runs `text` as a shell script in the job's folder.
  int shell(const std::string& job, const std::string& text) {
    const std::string folder = path(job);
    if (!std::filesystem::exists(folder + "/job.toml")) write_job(folder);
    EXPECT_TRUE(write_file_atomically(folder + "/script", text).ok());
    ChildProcess child(folder, "bash script");
    const int code = child.wait(kDeadline);
    output_ = child.output();
    return code;
  }
};

TEST_F(HostileUser, SecondTrainerOnACheckpointDirectoryWaitsAndStopsOnRequest) {
  write_job(path("job"));
  ChildProcess first(path("job"), mpirun(0) +
                                      " train job.toml --set training.steps=100000 "
                                      "--set output.min_step_seconds=0.02");
  ASSERT_TRUE(wait_until(kDeadline, [&] { return last_step("job") >= 1; })) << first.output();
  ASSERT_TRUE(make_directories(path("job") + "/second").ok());
  ChildProcess second(path("job") + "/second",
                      mpirun(0) + " train ../job.toml --set checkpoint.dir=../checkpoints");
  ASSERT_TRUE(wait_until(kDeadline, [&] {
    return second.output().find("waiting for '../checkpoints/.lock', held by process") !=
           std::string::npos;
  })) << second.output();
  second.signal(SIGTERM);
  EXPECT_EQ(second.wait(kDeadline), 85) << second.output();
  EXPECT_FALSE(std::filesystem::exists(path("job") + "/second/metrics.jsonl"));
  first.signal(SIGUSR1);
  EXPECT_EQ(first.wait(kDeadline), 85) << first.output();
}

TEST_F(HostileUser, CheckpointDirectoryThatCannotBeWrittenIsRefusedAtOnce) {
  ASSERT_EQ(shell("job", "touch file"), 0);
  EXPECT_EQ(train("job", 2, "--set checkpoint.dir=file/below"), 78) << output_;
  EXPECT_THAT(output_, HasSubstr("checkpoint.dir: cannot create directory 'file/below'"));
  EXPECT_EQ(train("job", 0, "--set checkpoint.dir=file"), 78) << output_;
  EXPECT_TRUE(metrics("job").empty());
}

TEST_F(HostileUser, FullDiskUnderTheMetricsDoesNotEndTheTraining) {
  // A limit on file sizes stands in for the full disk: writes come up short, then fail.
  ASSERT_EQ(train("job", 0, "--set output.trace=false"), 0) << output_;
  const auto whole = losses("job");
  const int code = shell("limited", std::string("ulimit -f 1; exec ") + TRAINER +
                                        " train job.toml --set model.layers=1 --set "
                                        "model.hidden=4 --set model.heads=1 --set "
                                        "model.kv_heads=1 --set model.ffn=1 --set model.vocab=512 "
                                        "--set output.profile_steps=0");
  // The checkpoints may not fit either; the steps are all made, and no line is cut.
  EXPECT_THAT(output_, HasSubstr("training goes on, the lines are kept")) << code;
  EXPECT_THAT(output_, HasSubstr("step 8/8"));
  const auto text = read_file(path("limited") + "/metrics.jsonl");
  ASSERT_TRUE(text.ok());
  EXPECT_TRUE(text->empty() || text->back() == '\n');
  EXPECT_LT(metrics("limited").size(), whole.size());
}

TEST_F(HostileUser, CopyUnderAnotherStepsNameIsPassedOver) {
  ASSERT_EQ(train("job", 0, "--set training.steps=2"), 0) << output_;
  ASSERT_EQ(shell("job", "cp -r checkpoints/step-2 checkpoints/step-9"), 0);
  ASSERT_EQ(train("job", 0, "--set training.steps=3"), 0) << output_;
  EXPECT_THAT(output_, HasSubstr("step-9: manifest.json is of step 2"));
  EXPECT_THAT(output_, HasSubstr("resuming from 'checkpoints/step-2'"));
}

TEST_F(HostileUser, CheckpointWithoutPermissionIsNotTrainedOver) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read everything";
  ASSERT_EQ(train("job", 0, "--set training.steps=2 --set checkpoint.every_steps=1"), 0);
  ASSERT_EQ(::chmod((path("job") + "/checkpoints/step-2/manifest.json").c_str(), 0), 0);
  EXPECT_EQ(train("job", 0), 78);
  EXPECT_THAT(output_, HasSubstr("Permission denied"));
}

TEST_F(HostileUser, ClosedAndFullStandardStreams) {
  const std::string trainer = TRAINER;
  ASSERT_EQ(shell("job", trainer + " train job.toml >&- 2>&- <&-"), 0) << output_;
  EXPECT_EQ(losses("job").size(), 8u);
  const std::string known = digest("job");
  EXPECT_EQ(shell("job", trainer + " digest checkpoints > /dev/full"), 1);
  EXPECT_THAT(output_, HasSubstr("could not be written to standard output"));
  // `true` has left before the first step.
  ASSERT_EQ(shell("piped", "set -o pipefail; " + trainer + " train job.toml | true"), 0) << output_;
  EXPECT_EQ(digest("piped"), known);
}

TEST_F(HostileUser, PathsThatAreNoText) {
  EXPECT_EQ(shell("job", std::string(TRAINER) + " train job.toml --set $'checkpoint.dir=c\\xff'"),
            78);
  EXPECT_THAT(output_, HasSubstr("checkpoint.dir must be UTF-8"));
}

TEST_F(HostileUser, BareEnvironment) {
  EXPECT_EQ(shell("job", std::string("env -i ") + TRAINER + " train job.toml"), 0) << output_;
}

TEST_F(HostileUser, DirectoriesWhereFilesAreExpectedAreTheUsersToChange) {
  EXPECT_EQ(shell("job", std::string(TRAINER) + " train ."), 78) << output_;
  EXPECT_EQ(shell("job", std::string(TRAINER) + " digest job.toml"), 78) << output_;
  EXPECT_EQ(shell("job", std::string(TRAINER) + " train /dev/zero"), 78) << output_;
  EXPECT_EQ(shell("job", "mkfifo pipe; timeout 30 " + std::string(TRAINER) + " train pipe"), 78)
      << output_;
}

}  // namespace
}  // namespace flextrain::trainer
