// SPDX-License-Identifier: MIT
#include "trainer/run/hold_point.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "tests/trainer/temp_folder.h"

namespace flextrain::trainer {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class HoldPointTest : public TempFolder {
 protected:
  void close(const std::string& point) { std::ofstream(path(point)) << "\n"; }
  void open(const std::string& point) { std::filesystem::remove(path(point)); }
  bool reached(const std::string& point) {
    for (int i = 0; i < 1000 && !std::filesystem::exists(path(point + ".here")); ++i) {
      std::this_thread::sleep_for(milliseconds(10));
    }
    return std::filesystem::exists(path(point + ".here"));
  }
};

TEST_F(HoldPointTest, WaitsForTheFileToGo) {
  const HoldPoint hold(path(""));
  close("init");
  auto waiting = std::async(std::launch::async, [&] { hold.wait("init"); });
  ASSERT_TRUE(reached("init"));
  EXPECT_EQ(waiting.wait_for(milliseconds(200)), std::future_status::timeout);
  open("init");
  ASSERT_EQ(waiting.wait_for(seconds(10)), std::future_status::ready);
  EXPECT_FALSE(std::filesystem::exists(path("init.here")));
}

TEST_F(HoldPointTest, OnlyAtItsOwnPoints) {
  close("save");
  HoldPoint("").wait("save");
  const HoldPoint hold(path(""));
  hold.wait("");  // a save that nobody asked for; the folder itself exists
  hold.wait("init");
  EXPECT_EQ(hold.step_seconds(), 0);
  close("slow");
  EXPECT_EQ(hold.step_seconds(), kSlowStep);
}

TEST_F(HoldPointTest, ASaveIsHeldBeforeItIsInPlace) {
  const HoldPoint hold(path(""));
  HoldingFileSystem files(posix_file_system(), hold, "save");
  ASSERT_TRUE(files.make_directories(path("a")).ok());
  ASSERT_TRUE(write_synced(files, path("a/x"), "bytes").ok());
  close("save");
  auto renaming =
      std::async(std::launch::async, [&] { return files.rename(path("a"), path("b")).ok(); });
  ASSERT_TRUE(reached("save"));
  EXPECT_TRUE(files.exists(path("a/x")));
  EXPECT_FALSE(files.exists(path("b")));
  open("save");
  ASSERT_EQ(renaming.wait_for(seconds(10)), std::future_status::ready);
  EXPECT_TRUE(renaming.get());
  close("save");
  EXPECT_TRUE(files.rename(path("b"), path("c")).ok());  // `latest`: not held again
}

}  // namespace
}  // namespace flextrain::trainer
