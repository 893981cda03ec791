// SPDX-License-Identifier: MIT
// What the controller hears of a save that nobody asked for (a periodic one).
#include <gtest/gtest.h>

#include <csignal>

#include "rig.h"

namespace flextrain::agent {
namespace {

using protocol::OrderKind;

class PeriodicSave : public ::testing::Test {
 protected:
  bool told(std::string_view state) {
    return wait_until([&] {
      const auto progress = controller.progress();
      return progress && progress->state == state && progress->step > 0;
    });
  }
  void start_and_save() {
    rig.start_base(controller.port());
    ASSERT_TRUE(told(protocol::kTrainerRunning));
    rig.write("save_now", "");
    ASSERT_TRUE(told(protocol::kTrainerSaving));
    EXPECT_EQ(controller.progress()->gpus, 2);
  }

  Rig rig;
  FakeController controller;
};

TEST_F(PeriodicSave, IsToldWhenItBeginsAndWhenItEnds) {
  start_and_save();
  rig.remove("save_now");
  EXPECT_TRUE(told(protocol::kTrainerRunning));
  EXPECT_EQ(rig.launches(), 1);
}

// An order that comes meanwhile waits for the save, and is what is told from then on.
TEST_F(PeriodicSave, GivesWayToAnOrder) {
  start_and_save();
  controller.send_order(rig.order(OrderKind::kGrow, "grow-1", 1, "plan3"), 1);
  EXPECT_TRUE(told("switching"));
  EXPECT_TRUE(controller.reports().empty());
  rig.remove("save_now");
  ASSERT_TRUE(wait_until([&] { return !controller.reports().empty(); }));
  EXPECT_TRUE(controller.reports()[0].done) << controller.reports()[0].reason;
  EXPECT_TRUE(wait_until([&] {
    const auto progress = controller.progress();
    return progress->state == protocol::kTrainerRunning && progress->gpus == 3;
  }));
}

// A trainer that dies in a save does not save any more.
TEST_F(PeriodicSave, EndsWithTheTrainer) {
  start_and_save();
  ASSERT_EQ(::kill(rig.last_trainer(), SIGKILL), 0);
  rig.remove("save_now");
  EXPECT_TRUE(told(protocol::kTrainerRunning));
  EXPECT_EQ(rig.launches(), 2);
}

}  // namespace
}  // namespace flextrain::agent
