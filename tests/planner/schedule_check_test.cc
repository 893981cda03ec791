// SPDX-License-Identifier: MIT
// The checker itself: it must see every kind of defect, or the other tests prove nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "planner/schedule.h"

namespace flextrain::planner {
namespace {

using ::testing::HasSubstr;

using K = ActionKind;

// Index of an action in a list, counted from the front.
size_t index_of(const StageActions& actions, K kind, int micro_batch) {
  const auto found = std::find_if(actions.begin(), actions.end(), [&](const Action& action) {
    return action.kind == kind && action.micro_batch == micro_batch;
  });
  EXPECT_NE(found, actions.end());
  return static_cast<size_t>(found - actions.begin());
}

void move_before(StageActions& actions, size_t from, size_t to) {
  const Action action = actions[from];
  actions.erase(actions.begin() + static_cast<std::ptrdiff_t>(from));
  actions.insert(actions.begin() + static_cast<std::ptrdiff_t>(to), action);
}

TEST(CheckSchedule, NamesEachDefect) {
  struct Case {
    std::string what;
    std::function<void(Schedule&)> spoil;
  };
  const std::vector<Case> cases = {
      {"stage 0 lacks the SendForward of micro-batch 2",
       [](Schedule& s) { s[0].erase(s[0].begin() + index_of(s[0], K::kSendForward, 2)); }},
      {"its RecvForward does not come before",
       [](Schedule& s) { s[1].erase(s[1].begin() + index_of(s[1], K::kRecvForward, 2)); }},
      {"its RecvBackward does not come before",
       [](Schedule& s) { s[0].erase(s[0].begin() + index_of(s[0], K::kRecvBackward, 1)); }},
      {"lacks the SendBackward of micro-batch 3",
       [](Schedule& s) { s[1].erase(s[1].begin() + index_of(s[1], K::kSendBackward, 3)); }},
      {"does not come before",
       [](Schedule& s) { s[1].erase(s[1].begin() + index_of(s[1], K::kForward, 0)); }},
      {"Forward of micro-batch 1, chunk 0): is done twice",
       [](Schedule& s) { s[0].insert(s[0].begin(), s[0][index_of(s[0], K::kForward, 1)]); }},
      {"is done twice",
       [](Schedule& s) {
         const Action send = s[0][index_of(s[0], K::kSendForward, 0)];
         s[0].insert(s[0].begin() + index_of(s[0], K::kSendForward, 0), send);
       }},
      {"its Forward does not come before",
       [](Schedule& s) {
         move_before(s[0], index_of(s[0], K::kSendForward, 0), index_of(s[0], K::kForward, 0));
       }},
      {"comes before the Backward of micro-batch 3",
       [](Schedule& s) {
         move_before(s[1], index_of(s[1], K::kReduce, 0), index_of(s[1], K::kBackward, 3));
       }},
      {"before the Reduce of chunk 0",
       [](Schedule& s) { std::swap(s[0][s[0].size() - 1], s[0][s[0].size() - 2]); }},
      {"lacks the Step", [](Schedule& s) { s[1].pop_back(); }},
      {"comes after the Step", [](Schedule& s) { s[1].push_back(s[1].back()); }},
      {"before the Reduce of chunk 0", [](Schedule& s) { s[0].erase(s[0].end() - 2); }},
      {"slot 0 is still in use by micro-batch 0",
       [](Schedule& s) { s[0][index_of(s[0], K::kForward, 1)].slot = 0; }},
      {"names slot 1, but its tensors are in slot 0",
       [](Schedule& s) { s[0][index_of(s[0], K::kBackward, 0)].slot = 1; }},
      {"slot -1", [](Schedule& s) { s[0][0].slot = -1; }},
      {"slot 1000000", [](Schedule& s) { s[0][0].slot = 1000000; }},
      {"micro-batches 0 ... 3", [](Schedule& s) { s[0][0].micro_batch = 4; }},
      {"chunks 0 ... 0", [](Schedule& s) { s[0][0].chunk = 1; }},
      {"peer must be stage 1",
       [](Schedule& s) { s[0][index_of(s[0], K::kSendForward, 0)].peer = 0; }},
      {"only Send and Recv have a peer", [](Schedule& s) { s[0][0].peer = 1; }},
      {"no other stage to talk to",
       [](Schedule& s) {
         s[0].insert(s[0].begin(), Action{K::kRecvForward, 0, 0, 1, 0});
       }},
      {"lacks the Wgrad of micro-batch 1",
       [](Schedule& s) {
         const size_t at = index_of(s[0], K::kBackward, 0);
         s[0].insert(s[0].begin() + static_cast<std::ptrdiff_t>(at) + 1,
                     Action{K::kWgrad, 0, 0, -1, s[0][at].slot});
         s[0].erase(s[0].end() - 2, s[0].end());
         s[0].push_back(Action{K::kReduce, 0, 0, -1, 0});
       }},
  };
  for (const Case& c : cases) {
    Schedule schedule = *make_1f1b(2, 1, 4);
    ASSERT_TRUE(check_schedule(schedule, 1, 4, {}).ok());
    c.spoil(schedule);
    const auto report = check_schedule(schedule, 1, 4, {});
    ASSERT_FALSE(report.ok()) << c.what;
    if (c.what.find("Wgrad") != std::string::npos) continue;  // several messages are right
    EXPECT_EQ(report.status().code(), StatusCode::kInvalidArgument) << c.what;
    EXPECT_THAT(report.status().message(), HasSubstr(c.what));
  }
}

// The usual way to write 1F1B, every Send after its computation and every Recv before its own,
// with no thought of the other side, does deadlock under rendezvous; the checker must say so.
TEST(CheckSchedule, NaiveOneForwardOneBackwardDeadlocks) {
  const auto stage0 = StageActions{{K::kForward, 0, 0, -1, 0},     {K::kSendForward, 0, 0, 1, 0},
                                   {K::kForward, 1, 0, -1, 1},     {K::kSendForward, 1, 0, 1, 1},
                                   {K::kRecvBackward, 0, 0, 1, 0}, {K::kBackward, 0, 0, -1, 0},
                                   {K::kRecvBackward, 1, 0, 1, 1}, {K::kBackward, 1, 0, -1, 1},
                                   {K::kReduce, 0, 0, -1, 0},      {K::kStep, 0, 0, -1, 0}};
  const auto stage1 = StageActions{{K::kRecvForward, 0, 0, 0, 0}, {K::kForward, 0, 0, -1, 0},
                                   {K::kBackward, 0, 0, -1, 0},   {K::kSendBackward, 0, 0, 0, 0},
                                   {K::kRecvForward, 1, 0, 0, 0}, {K::kForward, 1, 0, -1, 0},
                                   {K::kBackward, 1, 0, -1, 0},   {K::kSendBackward, 1, 0, 0, 0},
                                   {K::kReduce, 0, 0, -1, 0},     {K::kStep, 0, 0, -1, 0}};
  const auto report = check_schedule({stage0, stage1}, 1, 2, {});
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(report.status().message(), HasSubstr("deadlock of 2 stages"));
  EXPECT_THAT(report.status().message(), HasSubstr("stage 0 at action 3 (SendForward"));
  EXPECT_THAT(report.status().message(), HasSubstr("stage 1 at action 3 (SendBackward"));
}

TEST(CheckSchedule, TimesRendezvousAndTransfers) {
  // Two stages, one micro-batch: F 3, hop 1, F 3, B 5, hop 1, B 5; Reduce 2 and Step 4 at the end.
  ActionCosts costs;
  costs.forward = 3;
  costs.backward = 5;
  costs.transfer = 1;
  costs.reduce = 2;
  costs.step = 4;
  const auto report = check_schedule(*make_1f1b(2, 1, 1), 1, 1, costs);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_DOUBLE_EQ(report->makespan, 3 + 1 + 3 + 5 + 1 + 5 + 2 + 4);
  // Stage 0 waits while stage 1 runs forward and backward; stage 1 waits for the first forward.
  EXPECT_DOUBLE_EQ(report->idle[0], 8);
  EXPECT_DOUBLE_EQ(report->idle[1], 3);
  const TimedAction& first = report->timeline[1].front();
  EXPECT_EQ(first.action.kind, K::kRecvForward);
  EXPECT_DOUBLE_EQ(first.begin, 3);
  EXPECT_DOUBLE_EQ(first.end, 4);
}

TEST(CheckSchedule, CostsPerChunk) {
  ActionCosts costs;
  costs.forward_of = {{1, 2}, {3, 4}};
  costs.backward_of = {{10, 20}, {30, 40}};
  const auto report = check_schedule(*make_1f1b(2, 2, 1), 2, 1, costs);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_DOUBLE_EQ(report->makespan, 1 + 2 + 3 + 4 + 10 + 20 + 30 + 40);
  costs.forward_of.pop_back();
  EXPECT_FALSE(check_schedule(*make_1f1b(2, 2, 1), 2, 1, costs).ok());
}

// Split backward (Wgrad apart) and recomputation, in a list made by hand.
TEST(CheckSchedule, WgradAndRecompute) {
  const StageActions actions = {
      {K::kForward, 0, 0, -1, 0}, {K::kRecompute, 0, 0, -1, 0}, {K::kBackward, 0, 0, -1, 0},
      {K::kForward, 1, 0, -1, 1}, {K::kBackward, 1, 0, -1, 1},  {K::kWgrad, 0, 0, -1, 0},
      {K::kWgrad, 1, 0, -1, 1},   {K::kReduce, 0, 0, -1, 0},    {K::kStep, 0, 0, -1, 0}};
  ActionCosts costs;
  costs.backward = 1;
  costs.wgrad = 1;
  const auto report = check_schedule({actions}, 1, 2, costs);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_DOUBLE_EQ(report->makespan, 2 + 1 + 2 + 2);
  EXPECT_EQ(report->peak_slots[0], 2);  // a slot is needed until its Wgrad
  StageActions late = actions;
  std::swap(late[1], late[2]);
  EXPECT_THAT(check_schedule({late}, 1, 2, costs).status().message(),
              HasSubstr("its Backward is done"));
}

TEST(CheckSchedule, RefusesImpossibleShapes) {
  const Schedule schedule = *make_1f1b(2, 1, 4);
  EXPECT_FALSE(check_schedule({}, 1, 4, {}).ok());
  EXPECT_FALSE(check_schedule(schedule, 0, 4, {}).ok());
  EXPECT_FALSE(check_schedule(schedule, 1, 0, {}).ok());
  EXPECT_FALSE(check_schedule(schedule, 1, 5, {}).ok());
  EXPECT_FALSE(check_schedule(schedule, 2, 4, {}).ok());
  EXPECT_FALSE(check_schedule(schedule, 1, 2147483647, {}).ok());
}

}  // namespace
}  // namespace flextrain::planner
