// SPDX-License-Identifier: MIT
// SIGKILL at every operation of a save and of the retention after it.
#include <sys/wait.h>

#include "tests/trainer/checkpoint/checkpoint_fixture.h"

namespace flextrain::trainer {
namespace {

class CrashTest : public CheckpointTest {
 protected:
  // What the trainer does at a checkpoint, in a child that dies at operation `at`. True when it
  // lived to the end.
  bool save_and_die(Fault fault, int at, int64_t step) {
    const pid_t child = ::fork();
    if (child == 0) {
      FaultyFileSystem files(fault, at);
      const bool ok = save(step, files).ok() &&
                      apply_retention(files, path("ckpt"), fmt::format("step-{}", step), 2, 0).ok();
      ::_exit(ok ? 0 : 1);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
    return WIFEXITED(status);
  }
  void fill() {
    ASSERT_TRUE(posix_file_system().remove_all(path("ckpt")).ok());
    ASSERT_TRUE(save(5).ok());
    ASSERT_TRUE(save(10).ok());
  }
};

TEST_F(CrashTest, AnyKillLeavesAnIntactCheckpoint) {
  for (const Fault fault : {Fault::kKillBefore, Fault::kKillMidway}) {
    bool lived = false;
    int old = 0, fresh = 0;
    for (int at = 0; !lived; ++at) {
      ASSERT_LT(at, 200);
      fill();
      lived = save_and_die(fault, at, 20);
      const Loaded loaded = load();
      ASSERT_TRUE(loaded.report.ok()) << at << ": " << loaded.report.status().to_string();
      ASSERT_TRUE(loaded.report->manifest.has_value());
      EXPECT_TRUE(loaded.report->damages.empty()) << loaded.report->damages[0];
      EXPECT_TRUE(loaded.value == 10 || loaded.value == 20) << loaded.value;
      ++(loaded.value == 10 ? old : fresh);
      if (lived) {
        EXPECT_EQ(loaded.value, 20);
      }
      ASSERT_TRUE(clean_leftovers(posix_file_system(), path("ckpt")).ok());
      EXPECT_EQ(leftovers(), 0);
      // The run goes on from there.
      ASSERT_TRUE(save(30).ok());
      EXPECT_EQ(load().value, 30);
    }
    // The kills lay on both sides of the commit.
    EXPECT_GT(old, 10);
    EXPECT_GT(fresh, 3);
  }
}

// The newest is damaged, the run went back to step 10 and comes to step 20 again.
TEST_F(CrashTest, ReplacingADamagedCheckpointIsSafeToo) {
  bool lived = false;
  for (int at = 0; !lived; ++at) {
    ASSERT_LT(at, 200);
    fill();
    ASSERT_TRUE(save(20).ok());
    flip(file(20, "layer-2.safetensors"));
    lived = save_and_die(Fault::kKillMidway, at, 20);
    const Loaded loaded = load();
    ASSERT_TRUE(loaded.report.ok()) << at << ": " << loaded.report.status().to_string();
    EXPECT_TRUE(loaded.value == 10 || loaded.value == 20) << loaded.value;
  }
  EXPECT_EQ(load().value, 20);
  EXPECT_TRUE(load().report->damages.empty());
}

}  // namespace
}  // namespace flextrain::trainer
