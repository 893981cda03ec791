// SPDX-License-Identifier: MIT
#include "tests/trainer/checkpoint/checkpoint_fixture.h"

namespace flextrain::trainer {
namespace {

using testing::HasSubstr;

TEST_F(CheckpointTest, RoundTrip) {
  const auto digest = save(20);
  ASSERT_TRUE(digest.ok()) << digest.status().to_string();
  EXPECT_EQ(*read_file(path("ckpt/latest")), "step-20\n");
  const Loaded loaded = load();
  ASSERT_TRUE(loaded.report.ok()) << loaded.report.status().to_string();
  ASSERT_TRUE(loaded.report->manifest.has_value());
  const Manifest& manifest = *loaded.report->manifest;
  EXPECT_EQ(loaded.value, 20);
  EXPECT_EQ(loaded.scale, 44);
  EXPECT_EQ(manifest.cursor.step, 20);
  EXPECT_EQ(manifest.cursor.consumed_samples, 160);
  EXPECT_EQ(manifest.digest, *digest);
  EXPECT_EQ(planner::plan_to_json(manifest.plan), planner::plan_to_json(plan()));
  EXPECT_TRUE(loaded.report->damages.empty());
  const auto verified = verify_checkpoint(posix_file_system(), path("ckpt/step-20"));
  ASSERT_TRUE(verified.ok()) << verified.status().to_string();
}

TEST_F(CheckpointTest, EmptyAndMissingDirectoriesHoldNone) {
  const Loaded missing = load();
  ASSERT_TRUE(missing.report.ok());
  EXPECT_FALSE(missing.report->manifest.has_value());
  ASSERT_TRUE(make_directories(path("ckpt")).ok());
  EXPECT_FALSE(load().report->manifest.has_value());
}

// Saved by three ranks, loaded by two with other layers: the state and the digest are the same.
TEST_F(CheckpointTest, LayoutsDoNotMatter) {
  const auto straight = save(10);
  ASSERT_TRUE(straight.ok());
  ASSERT_TRUE(posix_file_system().remove_all(path("ckpt")).ok());
  const std::vector<std::vector<planner::LayerId>> savers = {{3}, {0, 2}, {1}};
  run_ranks(3, [&](Communicator& comm) {
    const FakeEngine engine(savers[static_cast<size_t>(comm.rank())], 10);
    const auto digest =
        save_checkpoint(posix_file_system(), comm, engine, config(), plan(), meta(10));
    ASSERT_TRUE(digest.ok()) << digest.status().to_string();
    EXPECT_EQ(*digest, *straight);
  });
  const std::vector<std::vector<planner::LayerId>> loaders = {{0, 1}, {1, 2, 3}};
  run_ranks(2, [&](Communicator& comm) {
    FakeEngine engine(loaders[static_cast<size_t>(comm.rank())], -1);
    const auto report = load_checkpoint(posix_file_system(), comm, engine, config(), kFingerprint);
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    for (const int layer : engine.layers_held()) EXPECT_EQ(engine.value_of(layer), 10);
  });
}

TEST_F(CheckpointTest, EveryRankSeesAnotherRanksFailure) {
  ASSERT_TRUE(save(10).ok());
  run_ranks(3, [&](Communicator& comm) {
    FaultyFileSystem files(comm.rank() == 1 ? Fault::kNoSpace : Fault::kNone, 0);
    const FakeEngine engine({comm.rank()}, 20);
    const auto digest = save_checkpoint(files, comm, engine, config(), plan(), meta(20));
    ASSERT_FALSE(digest.ok());
    EXPECT_EQ(digest.status().code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(digest.status().message(), HasSubstr("rank 1: cannot write"));
    EXPECT_THAT(digest.status().message(), HasSubstr("step-20"));
  });
  EXPECT_EQ(leftovers(), 0);
  EXPECT_EQ(load().value, 10);
}

TEST_F(CheckpointTest, MissingAndDoubledLayersAreBugsThatAreCaught) {
  for (const std::vector<planner::LayerId>& layers :
       {std::vector<planner::LayerId>{0, 1, 3}, {0, 1, 2, 3, 3}}) {
    ThreadCommunicator comm(std::make_shared<ThreadGroup>(1), 0);
    FakeEngine engine({0, 1, 2, 3}, 1);
    engine.save_only(layers);
    EXPECT_FALSE(
        save_checkpoint(posix_file_system(), comm, engine, config(), plan(), meta(1)).ok());
  }
  EXPECT_FALSE(load().report->manifest.has_value());
  EXPECT_EQ(leftovers(), 0);
}

// An error at every single operation: the save fails or the new checkpoint is there; nothing else
// changes, and the next save works.
TEST_F(CheckpointTest, EveryErrorLeavesTheOldOrTheNew) {
  FaultyFileSystem counter(Fault::kNone, 0);
  ASSERT_TRUE(save(1, counter).ok());
  ASSERT_GT(counter.operations(), 20);
  for (const Fault fault : {Fault::kIoError, Fault::kNoSpace}) {
    for (int at = 0; at < counter.operations(); ++at) {
      ASSERT_TRUE(posix_file_system().remove_all(path("ckpt")).ok());
      ASSERT_TRUE(save(10).ok());
      FaultyFileSystem files(fault, at);
      const auto digest = save(20, files);
      const Loaded loaded = load();
      ASSERT_TRUE(loaded.report.ok()) << at << ": " << loaded.report.status().to_string();
      EXPECT_TRUE(loaded.report->damages.empty());
      EXPECT_EQ(leftovers(), 0) << "operation " << at;
      if (digest.ok()) {
        EXPECT_EQ(loaded.value, 20);
      } else if (fault == Fault::kNoSpace) {
        EXPECT_EQ(digest.status().code(), StatusCode::kResourceExhausted);
        EXPECT_EQ(loaded.value, 10);
      }
      ASSERT_TRUE(save(30).ok());
      EXPECT_EQ(load().value, 30);
    }
  }
}

}  // namespace
}  // namespace flextrain::trainer
