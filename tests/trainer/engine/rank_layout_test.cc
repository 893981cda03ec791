// SPDX-License-Identifier: MIT
#include "trainer/engine/rank_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>

#include "tests/trainer/engine/toy_run.h"

namespace flextrain::trainer {
namespace {

using testing::HasSubstr;

planner::Plan regular(const TrainConfig& config, int pp, int dp, int v) {
  planner::RegularLayout layout;
  layout.num_transformer_layers = config.model.layers;
  layout.pipeline_parallel = pp;
  layout.data_parallel = dp;
  layout.virtual_stages = v;
  layout.global_batch = config.global_batch;
  return planner::make_regular_plan(layout).value();
}

TEST(RankLayout, EveryLayerIsSavedOnceAndHeldByItsReduceGroup) {
  for (bool tied : {false, true})
    for (int pp = 1; pp <= 5; ++pp)
      for (int dp : {1, 2, 3})
        for (int v : {1, 2}) {
          if (pp == 1 && v > 1) continue;
          TrainConfig config = toy_config(7, 6);
          config.model.tied_head = tied;
          const planner::Plan plan = regular(config, pp, dp, v);
          std::map<int, int> saves;
          std::map<int, std::set<int>> holders;
          std::map<int, std::vector<int>> groups;
          for (int rank = 0; rank < pp * dp; ++rank) {
            const auto layout = make_rank_layout(config, plan, rank);
            ASSERT_TRUE(layout.ok()) << layout.status().to_string();
            for (const HeldLayer& held : layout->held) {
              saves[held.layer] += held.saves;
              holders[held.layer].insert(rank);
              groups[held.layer] = held.reduce_ranks;
            }
          }
          for (int layer = 0; layer <= 8; ++layer) {
            EXPECT_EQ(saves[layer], 1) << layer;
            EXPECT_EQ(holders[layer], std::set<int>(groups[layer].begin(), groups[layer].end()));
          }
        }
}

TEST(RankLayout, SendsAndReceivesPairByPeerAndTag) {
  const TrainConfig config = toy_config(7, 6);
  const planner::Plan plan = regular(config, 3, 2, 2);
  std::map<std::tuple<int, int, int>, int> balance;  // (from, to, tag)
  for (int rank = 0; rank < 6; ++rank) {
    const RankLayout layout = make_rank_layout(config, plan, rank).value();
    for (const RankAction& a : layout.actions) {
      using enum planner::ActionKind;
      if (a.action.kind == kSendForward || a.action.kind == kSendBackward)
        ++balance[{rank, a.peer_rank, a.tag}];
      if (a.action.kind == kRecvForward || a.action.kind == kRecvBackward)
        --balance[{a.peer_rank, rank, a.tag}];
    }
  }
  EXPECT_FALSE(balance.empty());
  for (const auto& [key, value] : balance) EXPECT_EQ(value, 0);
}

planner::Action action(planner::ActionKind kind, int micro_batch, int slot = 0) {
  return {kind, micro_batch, 0, -1, slot};
}

// Two micro-batches on one rank: each one's workspace lasts from its Recompute to its Wgrad.
TEST(RankLayout, WorkspacesLastUntilTheirLastReader) {
  using K = planner::ActionKind;
  TrainConfig config = toy_config(2, 2);
  planner::Plan plan = regular(config, 1, 1, 1);
  plan.schedule = "explicit";
  plan.explicit_actions = {
      {{action(K::kForward, 0, 0), action(K::kForward, 1, 1), action(K::kRecompute, 0, 0),
        action(K::kBackward, 0, 0), action(K::kRecompute, 1, 1), action(K::kWgrad, 0, 0),
        action(K::kBackward, 1, 1), action(K::kWgrad, 1, 1), action(K::kReduce, 0),
        action(K::kStep, 0)}}};
  const auto layout = make_rank_layout(config, plan, 0);
  ASSERT_TRUE(layout.ok()) << layout.status().to_string();
  EXPECT_TRUE(layout->split_backward);
  EXPECT_EQ(layout->workspaces, 2);
  std::vector<int> workspaces;
  for (const RankAction& a : layout->actions) workspaces.push_back(a.workspace);
  EXPECT_EQ(workspaces, (std::vector<int>{-1, -1, 0, 0, 1, 0, 1, 1, -1, -1}));

  // Without a split and without Recompute nothing waits.
  const auto plain = make_rank_layout(config, regular(config, 1, 1, 1), 0);
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain->workspaces, 0);
  EXPECT_FALSE(plain->split_backward);
}

struct Refusal {
  const char* name;
  std::function<void(TrainConfig&, planner::Plan&)> change;
  const char* message;
};

TEST(RankLayout, RefusesWhatItCannotDo) {
  const Refusal refusals[] = {
      {"tensor parallel",
       [](TrainConfig& config, planner::Plan& plan) {
         plan = regular(config, 1, 1, 1);
         plan.pipelines[0].stages[0].ranks = {{0, 0, 1}, {1, 1, 2}};
         plan.pipelines[0].stages[0].shard_units = 2;
         for (auto& group : plan.reduce_groups) group.ranks = {0, 1};
       },
       "tensor parallel"},
      {"batch", [](TrainConfig& config, planner::Plan&) { config.global_batch = 12; },
       "global_batch is 12"},
      {"layers", [](TrainConfig& config, planner::Plan&) { config.model.layers = 8; },
       "model.layers is 8"},
      {"micro-batch", [](TrainConfig& config, planner::Plan&) { config.micro_batch_size = 2; },
       "micro_batch_size is 2"},
      {"numerics",
       [](TrainConfig& config, planner::Plan&) { config.numerics = planner::Numerics::kFp32; },
       "numerics"},
      {"ZeRO", [](TrainConfig&, planner::Plan& plan) { plan.zero_stage = 1; }, "ZeRO"},
  };
  for (const Refusal& refusal : refusals) {
    TrainConfig config = toy_config(7, 6);
    planner::Plan plan = regular(config, 2, 1, 1);
    refusal.change(config, plan);
    const auto layout = make_rank_layout(config, plan, 0);
    ASSERT_FALSE(layout.ok()) << refusal.name;
    EXPECT_EQ(layout.status().code(), StatusCode::kInvalidArgument) << refusal.name;
    EXPECT_THAT(layout.status().message(), HasSubstr(refusal.message));
  }
}

}  // namespace
}  // namespace flextrain::trainer
