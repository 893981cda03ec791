// SPDX-License-Identifier: MIT
// It went wrong: when mpirun had left in order (code 85) its srun clients were killed at once. The
// steps' daemons, which had still to tell them of the tasks' ends, tried for 3 s; so long the node
// of a companion that had been given back stayed COMPLETING, the job that waited for its GPU did
// not start, and another job was made to give one back too.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "agent/process.h"

namespace flextrain::agent {
namespace {

using namespace std::chrono_literals;

class SrunClients : public ::testing::Test {
 protected:
  // A launcher that ends with 85 and leaves a client, which ends when it may and says so.
  pid_t launch_and_leave(std::initializer_list<int> orderly) {
    const std::string script =
        "(until [ -e '" + dir_ + "/may_end' ]; do sleep 0.01; done; : >'" + told() + "') & exit 85";
    Result<Process> process = Process::start({{"/bin/sh", "-c", script}, own_environment(), ""});
    EXPECT_TRUE(process.ok());
    const pid_t session = process->pid();
    for (;;) {
      if (const auto code = process->poll_exit(orderly)) {
        EXPECT_EQ(*code, 85);
        return session;
      }
      std::this_thread::sleep_for(1ms);
    }
  }
  std::string told() const { return dir_ + "/told"; }
  bool client_was_told() const { return std::filesystem::exists(told()); }
  static bool ends(Stragglers& stragglers) {
    for (int i = 0; i < 3000 && stragglers.any(); ++i) std::this_thread::sleep_for(10ms);
    return !stragglers.any();
  }
  void SetUp() override {
    std::string name = ::testing::TempDir() + "srun_clients.XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    dir_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  std::string dir_;
};

TEST_F(SrunClients, HearOfTheEndOfTheirSteps) {
  Stragglers clients(launch_and_leave({0, 85}));
  EXPECT_TRUE(clients.any());
  std::ofstream(dir_ + "/may_end");
  EXPECT_TRUE(ends(clients));
  EXPECT_TRUE(client_was_told());
}

TEST_F(SrunClients, AreNotWaitedForWhenTheLauncherDidNotLeaveInOrder) {
  Stragglers clients(launch_and_leave({0}));
  EXPECT_TRUE(ends(clients));
  EXPECT_FALSE(client_was_told());
}

TEST_F(SrunClients, AreKilledWhenTheirTimeIsOver) {
  Stragglers clients(launch_and_leave({0, 85}));
  EXPECT_TRUE(clients.any());
  clients.kill();
  EXPECT_TRUE(ends(clients));
  EXPECT_FALSE(client_was_told());
}

}  // namespace
}  // namespace flextrain::agent
