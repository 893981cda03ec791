// SPDX-License-Identifier: MIT
// A controller of many jobs asks for few messages: numbers then ride along with the polls, and only
// a change of state is told by itself.
#include <gtest/gtest.h>

#include "rig.h"

namespace flextrain::agent {
namespace {

TEST(Progress, NumbersRideWithPollsWhereTheControllerWishesSo) {
  FakeController controller;
  Rig rig;
  protocol::RegisterResponse answer;
  answer.elastic = true;
  answer.max_gpus = 8;
  answer.elastic_mode = "pp";
  answer.poll_seconds = 1;
  answer.progress_seconds = 3600;
  controller.set_registration(answer);
  rig.start_base(controller.port());
  ASSERT_TRUE(wait_until([&] { return controller.polls_with_progress() >= 3; }));
  const auto told = controller.progress();
  ASSERT_TRUE(told && told->state == "running");
  ASSERT_TRUE(wait_until([&] { return controller.progress()->step > told->step; }));
  const std::vector<std::string> states = controller.progress_states();
  EXPECT_EQ(states.back(), "running");
  for (size_t i = 1; i < states.size(); ++i) {
    EXPECT_NE(states[i], states[i - 1]) << "told by itself without a change of state";
  }
}

}  // namespace
}  // namespace flextrain::agent
