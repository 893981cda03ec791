// SPDX-License-Identifier: MIT
// A wire that loses, delays, doubles and reorders: whatever happens on it, an order is carried out
// once, and the controller hears how it went.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "rig.h"

namespace flextrain::agent {
namespace {

using namespace std::chrono_literals;
using protocol::OrderKind;
using ::testing::HasSubstr;

class Proxy : public ::testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const std::string upstream = "127.0.0.1:" + std::to_string(controller.port());
    const std::string rules = rig.file("rules"), log = rig.file("proxy.log");
    proxy_ = ::fork();
    if (proxy_ == 0) {
      ::dup2(ends[1], 1);
      ::execl(PROTOCOL_PROXY, "protocol_proxy", "0", upstream.c_str(), rules.c_str(), log.c_str(),
              "1", nullptr);
      ::_exit(127);
    }
    ::close(ends[1]);
    char text[16] = "";
    ASSERT_GT(::read(ends[0], text, sizeof text - 1), 0);
    ::close(ends[0]);
    port_ = std::atoi(text);
  }
  void TearDown() override {
    ::kill(proxy_, SIGKILL);
    ::waitpid(proxy_, nullptr, 0);
    if (HasFailure()) std::cerr << "--- proxy.log\n" << rig.read("proxy.log");
  }
  // Into place at once: the proxy reads it at any time.
  void rules(const std::string& text) {
    rig.write("rules.new", text);
    ::rename(rig.file("rules.new").c_str(), rig.file("rules").c_str());
  }
  void start_and_settle() {
    rig.start_base(port_);
    ASSERT_TRUE(wait_until([&] {
      const auto p = controller.progress();
      return p && p->state == "running" && p->step > 0;
    }));
  }
  bool in_proxy_log(const std::string& text) {
    return wait_until([&] { return rig.read("proxy.log").find(text) != std::string::npos; });
  }
  size_t reports_of(const std::string& order) {
    size_t count = 0;
    for (const auto& report : controller.reports()) count += report.order_id == order;
    return count;
  }
  bool done(const std::string& order) {
    for (const auto& report : controller.reports()) {
      if (report.order_id == order && report.phases.total > 0) return report.done;
    }
    return false;
  }
  // The controller offers its open order at every poll that is behind it, as the real one does.
  bool offer_until_done(const protocol::Order& order, int64_t sequence) {
    return wait_until([&] {
      controller.send_order(order, sequence);
      std::this_thread::sleep_for(300ms);
      return done(order.order_id);
    });
  }

  Rig rig;
  FakeController controller;
  pid_t proxy_ = -1;
  int port_ = 0;
};

TEST_F(Proxy, PassesEverythingWithoutRules) {
  start_and_settle();
  controller.send_order(rig.order(OrderKind::kGrow, "g", 1, "p3"), 1);
  ASSERT_TRUE(wait_until([&] { return done("g"); }));
  EXPECT_EQ(rig.launches(), 2);
}

TEST_F(Proxy, AnAnswerThatIsLostIsAskedForAgain) {
  start_and_settle();
  rules("poll response drop times=2\nreport response drop times=2\n");
  ASSERT_TRUE(offer_until_done(rig.order(OrderKind::kGrow, "g", 1, "p3"), 1));
  ASSERT_TRUE(in_proxy_log("report response pass"));
  EXPECT_GE(reports_of("g"), 3u) << "told until it was heard";
  EXPECT_EQ(rig.launches(), 2) << "one order, one switch";
}

TEST_F(Proxy, DoubledAndReplayedMessagesAreRefused) {
  start_and_settle();
  rules("* request duplicate\n");
  controller.send_order(rig.order(OrderKind::kGrow, "g", 1, "p3"), 1);
  ASSERT_TRUE(wait_until([&] { return done("g"); }));
  EXPECT_EQ(reports_of("g"), 1u) << "the second one's credential is known";
  // The order's own answer comes to the next poll too.
  rules("poll response duplicate times=1\n");
  controller.send_order(rig.order(OrderKind::kShrink, "s", 0, "p2"), 2);
  ASSERT_TRUE(in_proxy_log("poll response replayed"));
  rules("");
  ASSERT_TRUE(offer_until_done(rig.order(OrderKind::kShrink, "s", 0, "p2"), 2));
  std::this_thread::sleep_for(1500ms);  // nothing more must happen
  EXPECT_EQ(rig.launches(), 3);
}

TEST_F(Proxy, LateMessagesComeOutOfOrder) {
  start_and_settle();
  // Polls and reports arrive after their repetition, orders after the next one was given.
  rules(
      "poll request late 2 times=3\nreport request late 3 times=2\npoll response delay 2 p=0.5\n");
  ASSERT_TRUE(offer_until_done(rig.order(OrderKind::kGrow, "g", 1, "p3"), 1));
  ASSERT_TRUE(offer_until_done(rig.order(OrderKind::kShrink, "s", 0, "p2"), 2));
  ASSERT_TRUE(in_proxy_log("report request arrived-late"));
  controller.send_order(rig.order(OrderKind::kGrow, "g", 1, "p3"), 1);  // a ghost
  std::this_thread::sleep_for(3s);  // longer than a poll and its delay: nothing more must happen
  EXPECT_EQ(rig.launches(), 3);
  EXPECT_EQ(rig.last_size(), 2);
}

TEST_F(Proxy, AWireThatLosesAThirdOfEverything) {
  rules("* request drop p=0.2\n* response drop p=0.2\n");
  rig.start_base(port_);
  ASSERT_TRUE(offer_until_done(rig.order(OrderKind::kGrow, "g", 1, "p3"), 1));
  ASSERT_TRUE(offer_until_done(rig.order(OrderKind::kShrink, "s", 0, "p2"), 2));
  EXPECT_LE(rig.launches(), 3);
  EXPECT_EQ(rig.last_size(), 2);
}

// An order of an epoch that has passed, out of a wire that kept it.
TEST_F(Proxy, AnOldEpochsOrderIsRefused) {
  start_and_settle();
  controller.set_epoch(7);
  ASSERT_TRUE(offer_until_done(rig.order(OrderKind::kGrow, "g", 1, "p3"), 1));
  controller.set_epoch(6);
  controller.send_order(rig.order(OrderKind::kShrink, "old", 0, "p2"), 50);
  ASSERT_TRUE(
      wait_until([&] { return rig.log().find("epoch 6 is refused") != std::string::npos; }));
  EXPECT_EQ(rig.launches(), 2);
  EXPECT_EQ(reports_of("old"), 0u);
}

}  // namespace
}  // namespace flextrain::agent
