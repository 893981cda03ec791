// SPDX-License-Identifier: GPL-2.0-or-later
// Calls that hang: the watchdog says so while they do, and nothing of slurmctld's waits for them.
#include "base/log.h"
#include "controller_fixture.h"
#include "slurm_plugin/controller/watchdog.h"
#include "store/connection.h"

namespace flextrain::slurm_plugin {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class BlockedTest : public ControllerTest {
 protected:
  ~BlockedTest() override {
    go_on();
    controller.reset();
    cluster.on_call = nullptr;
  }
  // The next look at the cluster hangs until go_on().
  void hang_in_a_look() {
    cluster.on_call = [this](const char* call) {
      if (std::string_view(call) != "observe") return;
      inside_ = true;
      while (hang_) std::this_thread::sleep_for(milliseconds(2));
    };
    controller->wake();
    ASSERT_TRUE(eventually([&] { return inside_.load(); }));
  }
  void go_on() { hang_ = false; }
  // The longest of many calls that slurmctld makes under its own locks.
  milliseconds longest_hook() {
    auto longest = Steady::duration::zero();
    for (int n = 0; n < 200; ++n) {
      const auto begin = Steady::now();
      controller->wake();
      EXPECT_TRUE(controller->reconfigure(config).ok());
      longest = std::max(longest, Steady::now() - begin);
      std::this_thread::sleep_for(milliseconds(1));
    }
    return std::chrono::duration_cast<milliseconds>(longest);
  }
  std::string watchdog() { return diag().value("watchdog", ""); }

 private:
  std::atomic<bool> hang_{true}, inside_{false};
};

TEST_F(BlockedTest, TheWatchdogSpeaksWhileARoundHangsAndIsContentAgain) {
  config.tick_seconds = config.tick_limit_seconds = 1;
  start();
  ASSERT_TRUE(eventually([&] { return diag().value("ticks", 0) >= 1; }));
  EXPECT_EQ(watchdog(), "ok");
  hang_in_a_look();
  ASSERT_TRUE(eventually([&] { return watchdog() != "ok"; }));
  Json during = diag();  // answered while the round hangs
  EXPECT_THAT(during.at("watchdog").get<std::string>(), StartsWith("tripped: a tick took"));
  EXPECT_THAT(during.at("running").get<std::string>(), StartsWith("tick for"));
  EXPECT_EQ(during.at("elastic"), false);
  EXPECT_THAT(during.at("elastic_reason").get<std::string>(), HasSubstr("TickLimitSeconds"));
  go_on();
  ASSERT_TRUE(eventually([&] { return watchdog() == "ok"; }));
  const Json after = diag();
  EXPECT_EQ(after.at("elastic"), true);
  EXPECT_EQ(after.at("watchdog_trips"), 1);
  EXPECT_GE(after.at("tick_max_seconds").get<double>(), 1.0);
  EXPECT_GE(after.at("rpc_slowest_seconds").get<double>(), 1.0);
  EXPECT_EQ(after.at("rpc_slowest"), "observe");
  EXPECT_GT(after.at("memory_bytes").get<int64_t>(), 1 << 20);
  EXPECT_GT(after.at("decide_max_seconds").get<double>(), 0);
  for (const char* key : {"tick_last_seconds", "tick_p50_seconds", "tick_p99_seconds",
                          "connections", "message_queue", "query_queue", "waiting_requests"}) {
    EXPECT_TRUE(after.contains(key)) << key;
  }
}

TEST_F(BlockedTest, AReconfigureEndsTheWatchdogsWord) {
  config.tick_limit_seconds = 1;  // rounds come from wake() alone: no three good ones soon
  start();
  ASSERT_TRUE(eventually([&] { return diag().value("ticks", 0) >= 1; }));
  hang_in_a_look();
  ASSERT_TRUE(eventually([&] { return watchdog() != "ok"; }));
  go_on();
  ASSERT_TRUE(controller->reconfigure(config).ok());
  EXPECT_TRUE(eventually([&] { return watchdog() == "ok"; }));
}

TEST_F(BlockedTest, NothingWaitsForAHangingSlurmctld) {
  start();
  submit(true);
  controller->wake();
  ASSERT_TRUE(eventually([&] { return diag().value("jobs", 0) == 1; }));
  hang_in_a_look();
  EXPECT_LT(longest_hook(), milliseconds(500));  // microseconds on a machine with a core to spare
  const auto rows = call(protocol::kQuery, 1001,
                         protocol::to_json(protocol::QueryRequest{"jobs", Json::object()}));
  ASSERT_TRUE(rows.ok()) << rows.status().message();  // the database's readers wait for nobody
  EXPECT_EQ(rows->body.at("rows").size(), 1u);
}

TEST_F(BlockedTest, NothingWaitsForALockedDatabase) {
  start();
  ASSERT_TRUE(eventually([&] { return diag().value("ticks", 0) >= 1; }));
  store::Connection other;
  ASSERT_TRUE(other.open(config.database_path, 1000).ok());
  ASSERT_TRUE(other.execute("BEGIN IMMEDIATE").ok());
  submit(true);  // the worker has something to store, and waits for the lock
  EXPECT_LT(longest_hook(), milliseconds(500));
  EXPECT_TRUE(eventually([&] { return diag().value("database_fault", "") != ""; }));
  ASSERT_TRUE(other.execute("ROLLBACK").ok());
  controller->wake();
  EXPECT_TRUE(eventually([&] {
    controller->wake();
    return diag().value("database_fault", "?").empty();
  }));
}

TEST_F(BlockedTest, TheDatabaseDeletedSflexReadsTheNewOne) {
  start();
  const uint32_t id = submit(true);
  controller->wake();
  ASSERT_TRUE(eventually([&] { return diag().value("jobs", 0) == 1; }));
  for (const char* suffix : {"", "-wal", "-shm"}) {
    ::unlink((config.database_path + suffix).c_str());
  }
  controller->wake();
  ASSERT_TRUE(eventually([&] { return ::access(config.database_path.c_str(), F_OK) == 0; }));
  EXPECT_TRUE(eventually([&] {
    const auto rows = call(protocol::kQuery, 1001,
                           protocol::to_json(protocol::QueryRequest{"jobs", Json::object()}));
    return rows.ok() && rows->body.at("rows").size() == 1 &&
           rows->body.at("rows").at(0).at("job_id") == id;
  }));
}

// The second one says who holds the database, keeps off, and takes over when it may.
TEST_F(BlockedTest, TwoControllersOnOneDatabase) {
  start();
  static std::mutex mutex;
  static std::string lines;
  set_log_sink([](LogLevel, std::string_view line) {
    const std::lock_guard lock(mutex);
    lines += std::string(line) + "\n";
  });
  config.tick_seconds = 1;
  auto second = Controller::create(config, dependencies()).value();
  ASSERT_TRUE(second->start().ok());
  const auto log = [] {
    const std::lock_guard lock(mutex);
    return lines;
  };
  EXPECT_TRUE(eventually(
      [&] { return log().find("is locked by another process (host") != std::string::npos; }));
  std::this_thread::sleep_for(milliseconds(1500));
  EXPECT_EQ(second->port(), 0);
  const std::string text = log();
  EXPECT_EQ(text.find("only one controller"), text.rfind("only one controller"));  // one line
  EXPECT_TRUE(controller->stop(seconds(10)));
  EXPECT_TRUE(eventually([&] { return second->port() != 0; }));
  second.reset();
  set_log_sink(nullptr);
}

TEST(Watchdog, TripsOnceAndTakesThreeGoodTicks) {
  Watchdog dog;
  dog.set_limit(milliseconds(20));
  {
    const Watchdog::Span span(dog, "tick", true);
    std::this_thread::sleep_for(milliseconds(40));
  }
  EXPECT_THAT(dog.reason(), HasSubstr("a tick took"));
  dog.set_limit(seconds(60));
  for (int n = 0; n < Watchdog::kGoodTicks; ++n) {
    EXPECT_NE(dog.reason(), "") << n;
    { const Watchdog::Span message(dog, "message"); }  // does not count
    const Watchdog::Span span(dog, "tick", true);
  }
  EXPECT_EQ(dog.reason(), "");
  EXPECT_EQ(dog.report().at("watchdog_trips"), 1);
}

}  // namespace
}  // namespace flextrain::slurm_plugin
