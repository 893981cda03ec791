// SPDX-License-Identifier: MIT
#include "tests/trainer/checkpoint/checkpoint_fixture.h"

namespace flextrain::trainer {
namespace {

class RetentionTest : public CheckpointTest {
 protected:
  std::vector<std::string> names() const {
    return *list_checkpoints(posix_file_system(), path("ckpt"));
  }
  int64_t bytes_of_one() const {
    int64_t total = 0;
    for (const auto& entry : std::filesystem::directory_iterator(path("ckpt/step-1"))) {
      total += static_cast<int64_t>(entry.file_size());
    }
    return total;
  }
  Status retain(int64_t just_saved, int keep, int64_t budget) {
    return apply_retention(posix_file_system(), path("ckpt"), fmt::format("step-{}", just_saved),
                           keep, budget);
  }
  using Names = std::vector<std::string>;
};

TEST_F(RetentionTest, KeepsTheNewest) {
  for (const int step : {1, 2, 10, 9}) ASSERT_TRUE(save(step).ok());
  EXPECT_EQ(names(), (Names{"step-10", "step-9", "step-2", "step-1"}));
  ASSERT_TRUE(retain(10, 5, 0).ok());
  EXPECT_EQ(names().size(), 4u);
  ASSERT_TRUE(retain(10, 2, 0).ok());
  EXPECT_EQ(names(), (Names{"step-10", "step-9"}));
  ASSERT_TRUE(retain(10, 1, 0).ok());
  EXPECT_EQ(names(), (Names{"step-10"}));
  EXPECT_EQ(leftovers(), 0);
}

TEST_F(RetentionTest, KeepsToTheBudgetButNeverDropsTheNewest) {
  for (const int step : {1, 2, 3, 4}) ASSERT_TRUE(save(step).ok());
  const int64_t one = bytes_of_one();
  ASSERT_TRUE(retain(4, 10, 3 * one + one / 2).ok());
  EXPECT_EQ(names(), (Names{"step-4", "step-3", "step-2"}));
  ASSERT_TRUE(retain(4, 10, 1).ok());
  EXPECT_EQ(names(), (Names{"step-4"}));
}

TEST_F(RetentionTest, LastIntactOneStaysWhenTheNewOneIsDamaged) {
  ASSERT_TRUE(save(1).ok());
  ASSERT_TRUE(save(2).ok());
  flip(file(2, "layer-1.safetensors"));
  const Status status = retain(2, 1, 0);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_EQ(names(), (Names{"step-2", "step-1"}));
  EXPECT_EQ(load().value, 1);
}

TEST_F(RetentionTest, DamagedNewerOnesGoFirst) {
  for (const int step : {1, 2, 3}) ASSERT_TRUE(save(step).ok());
  flip(file(3, "layer-1.safetensors"));
  ASSERT_TRUE(retain(2, 2, 0).ok());
  EXPECT_EQ(names(), (Names{"step-2", "step-1"}));
}

TEST_F(RetentionTest, LeftoversGoAndOtherFilesStay) {
  ASSERT_TRUE(save(1).ok());
  for (const char* name : {"step-5.tmp-0123", "step-1.tmp-delete-9", "step-4.tmp-old-1"}) {
    ASSERT_TRUE(make_directories(path(std::string("ckpt/") + name)).ok());
    ASSERT_TRUE(write_file_atomically(path(fmt::format("ckpt/{}/x", name)), "x").ok());
  }
  for (const char* name : {"notes", "step-x", "step-", "mine.tmp-1", "step-1a.tmp-2"}) {
    ASSERT_TRUE(make_directories(path(std::string("ckpt/") + name)).ok());
  }
  ASSERT_TRUE(clean_leftovers(posix_file_system(), path("ckpt")).ok());
  EXPECT_EQ(names(), (Names{"step-1"}));
  const auto all = posix_file_system().list(path("ckpt"));
  EXPECT_EQ(*all,
            (Names{"latest", "mine.tmp-1", "notes", "step-", "step-1", "step-1a.tmp-2", "step-x"}));
  EXPECT_TRUE(clean_leftovers(posix_file_system(), path("nowhere")).ok());
}

}  // namespace
}  // namespace flextrain::trainer
