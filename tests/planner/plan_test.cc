// SPDX-License-Identifier: MIT
#include "planner/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "planner/schedule.h"
#include "tests/planner/random_plan.h"

namespace flextrain::planner {
namespace {

using ::testing::HasSubstr;

RegularLayout layout(int layers, int dp, int pp, int batch) {
  RegularLayout result;
  result.num_transformer_layers = layers;
  result.data_parallel = dp;
  result.pipeline_parallel = pp;
  result.global_batch = batch;
  return result;
}

TEST(RegularPlan, RanksArePipelineMajor) {
  const auto plan = make_regular_plan(layout(6, 2, 3, 8));
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  EXPECT_EQ(num_ranks(*plan), 6);
  EXPECT_EQ(total_micro_batches(*plan), 8);
  EXPECT_EQ(plan->pipelines[1].micro_batches, 4);
  const auto position = find_rank(*plan, 5);
  ASSERT_TRUE(position.ok());
  EXPECT_EQ(position->pipeline, 1);
  EXPECT_EQ(position->stage, 2);
  EXPECT_EQ(position->index_in_group, 0);
  EXPECT_EQ(find_rank(*plan, 6).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(find_rank(*plan, -1).status().code(), StatusCode::kNotFound);
  // The head lives on the last stages of both pipelines.
  EXPECT_EQ(plan->reduce_groups[7].ranks, (std::vector<int>{2, 5}));
  EXPECT_EQ(plan_summary(*plan), "PP 3 x DP 2, 1f1b, 6 GPUs");
  EXPECT_EQ(plan->id, plan_id(*plan));
  EXPECT_EQ(plan->id.size(), 32u);
}

TEST(RegularPlan, EveryDegreeIsAValidPlan) {
  for (int layers = 1; layers <= 30; ++layers) {
    for (int pp = 1; pp <= layers; ++pp) {
      for (const int virtual_stages : {1, 2}) {
        if (virtual_stages > 1 && pp == 1) continue;
        RegularLayout request = layout(layers, 1 + layers % 3, pp, 12 * (1 + layers % 3));
        request.virtual_stages = virtual_stages;
        const auto plan = make_regular_plan(request);
        ASSERT_TRUE(plan.ok()) << plan.status().to_string();
        ASSERT_TRUE(validate_plan(*plan).ok());
      }
    }
  }
}

TEST(RegularPlan, RefusesImpossibleLayouts) {
  struct Case {
    std::string what;
    std::function<void(RegularLayout&)> spoil;
  };
  const std::vector<Case> cases = {
      {"not a multiple", [](RegularLayout& l) { l.global_batch = 7; }},
      {"not a multiple", [](RegularLayout& l) { l.micro_batch_size = 3; }},
      {"pipeline parallel 9", [](RegularLayout& l) { l.pipeline_parallel = 9; }},
      {"virtual stages need",
       [](RegularLayout& l) { l.pipeline_parallel = 1, l.virtual_stages = 2; }},
      {"data parallel degree is 0", [](RegularLayout& l) { l.data_parallel = 0; }},
      {"global batch is -8", [](RegularLayout& l) { l.global_batch = -8; }},
      {"micro-batch size is 0", [](RegularLayout& l) { l.micro_batch_size = 0; }},
      {"virtual stages is 0", [](RegularLayout& l) { l.virtual_stages = 0; }},
      {"pipeline parallel degree is 0", [](RegularLayout& l) { l.pipeline_parallel = 0; }},
      {"transformer layers is 0", [](RegularLayout& l) { l.num_transformer_layers = 0; }},
      {"schedule 'zigzag'", [](RegularLayout& l) { l.schedule = "zigzag"; }},
      {"layer costs given",
       [](RegularLayout& l) {
         l.layer_costs = {1, 2};
       }},
      {"ranks", [](RegularLayout& l) { l.data_parallel = l.global_batch = 1 << 30; }},
  };
  for (const Case& c : cases) {
    RegularLayout request = layout(8, 2, 4, 8);
    c.spoil(request);
    const auto plan = make_regular_plan(request);
    ASSERT_FALSE(plan.ok()) << c.what;
    EXPECT_EQ(plan.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(plan.status().message(), HasSubstr(c.what));
  }
}

// Each defect of an otherwise valid Plan is named.
TEST(ValidatePlan, NamesEachDefect) {
  struct Case {
    std::string what;
    std::function<void(Plan&)> spoil;
  };
  const auto stage = [](Plan& plan, int p, int s) -> Stage& { return plan.pipelines[p].stages[s]; };
  const std::vector<Case> cases = {
      {"version 9", [](Plan& p) { p.version = 9; }},
      {"transformer layers", [](Plan& p) { p.num_transformer_layers = 0; }},
      {"transformer layers", [](Plan& p) { p.num_transformer_layers = 2000000000; }},
      {"micro-batch size", [](Plan& p) { p.micro_batch_size = 0; }},
      {"context parallel 2", [](Plan& p) { p.context_parallel = 2; }},
      {"expert parallel 2", [](Plan& p) { p.expert_parallel = 2; }},
      {"ZeRO stage 1", [](Plan& p) { p.zero_stage = 1; }},
      {"recompute flags", [](Plan& p) { p.recompute.pop_back(); }},
      {"no pipelines", [](Plan& p) { p.pipelines.clear(); }},
      {"has no stages", [](Plan& p) { p.pipelines[1].stages.clear(); }},
      {"has 0 micro-batches", [](Plan& p) { p.pipelines[0].micro_batches = 0; }},
      {"micro-batches", [](Plan& p) { p.pipelines[0].micro_batches = 2000000000; }},
      {"chunks x micro-batches", [](Plan& p) { p.pipelines[0].micro_batches = 1 << 20; }},
      {"has no ranks", [&](Plan& p) { stage(p, 0, 1).ranks.clear(); }},
      {"shard units", [&](Plan& p) { stage(p, 0, 1).shard_units = 0; }},
      {"empty shard", [&](Plan& p) { stage(p, 0, 1).ranks[0].shard_end = 0; }},
      {"leave a hole",
       [&](Plan& p) {
         stage(p, 0, 1).ranks[1].shard_begin = 2, stage(p, 0, 1).ranks[1].shard_end = 3;
       }},
      {"overlap", [&](Plan& p) { stage(p, 0, 1).ranks[1].shard_begin = 0; }},
      {"end at unit 2 of 3", [&](Plan& p) { stage(p, 0, 1).shard_units = 3; }},
      {"leader 7", [&](Plan& p) { stage(p, 0, 1).leader = 7; }},
      {"device type", [&](Plan& p) { stage(p, 0, 1).device_type = "a 100"; }},
      {"device type", [&](Plan& p) { stage(p, 0, 1).device_type = "\xff\xfe"; }},
      {"has 1 chunks, stage 0 has 2", [&](Plan& p) { stage(p, 0, 1).chunks.pop_back(); }},
      {"no chunks", [&](Plan& p) { stage(p, 0, 0).chunks.clear(); }},
      {"is empty", [&](Plan& p) { stage(p, 0, 0).chunks[1].clear(); }},
      {"holds layer 3", [&](Plan& p) { stage(p, 0, 1).chunks[0] = {3}; }},
      {"holds layer 1", [&](Plan& p) { stage(p, 0, 1).chunks[0] = {1}; }},
      {"holds layer -2", [&](Plan& p) { stage(p, 0, 1).chunks[0] = {-2}; }},
      {"lacks layer 5", [&](Plan& p) { stage(p, 0, 1).chunks[1].pop_back(); }},
      {"holds layer 6", [&](Plan& p) { stage(p, 0, 1).chunks[1].push_back(6); }},
      {"holds layer -1", [&](Plan& p) { stage(p, 0, 1).chunks[1].push_back(kNoOp); }},
      {"holds layer -1",
       [&](Plan& p) {
         auto& chunk = stage(p, 0, 0).chunks[0];
         chunk.insert(chunk.begin(), kNoOp);
       }},
      {"single stage",
       [&](Plan& p) {
         p.pipelines[1].stages.resize(1);
         stage(p, 1, 0).chunks = {{0, 1, 2}, {3, 4, 5}};
       }},
      {"rank 1 is missing", [&](Plan& p) { stage(p, 0, 0).ranks[1].rank = 20; }},
      {"doubled", [&](Plan& p) { stage(p, 0, 0).ranks[1].rank = 0; }},
      {"reduce groups", [](Plan& p) { p.reduce_groups.pop_back(); }},
      {"reduce group 2 is for layer 3", [](Plan& p) { p.reduce_groups[2].layer = 3; }},
      {"reduce group of layer 2", [](Plan& p) { p.reduce_groups[2].ranks.pop_back(); }},
      {"reduce group of layer 2",
       [](Plan& p) { std::swap(p.reduce_groups[2].ranks[0], p.reduce_groups[2].ranks[1]); }},
      {"one device type", [&](Plan& p) { stage(p, 1, 1).device_type = "rtx4090"; }},
      {"equal shards",
       [&](Plan& p) { stage(p, 1, 1).shard_units = 3, stage(p, 1, 1).ranks[1].shard_end = 3; }},
      {"schedule 'zigzag'", [](Plan& p) { p.schedule = "zigzag"; }},
      {"must not carry explicit", [](Plan& p) { p.explicit_actions.resize(1); }},
      {"explicit actions for 0 pipelines", [](Plan& p) { p.schedule = "explicit"; }},
      {"explicit actions for 0 stages",
       [](Plan& p) { p.schedule = "explicit", p.explicit_actions.resize(2); }},
      {"explicit schedule of pipeline 1",
       [](Plan& p) {
         p.schedule = "explicit";
         p.explicit_actions = {make_1f1b(2, 2, 4).value(), make_1f1b(2, 2, 4).value()};
         p.explicit_actions[1][0].pop_back();
       }},
  };
  for (const Case& c : cases) {
    // PP 2 × DP 2 × TP 2, two chunks a stage, four layers.
    RegularLayout request = layout(4, 2, 2, 8);
    request.virtual_stages = 2;
    Plan plan = make_regular_plan(request).value();
    for (auto& pipeline : plan.pipelines) {
      for (Stage& s : pipeline.stages) {
        const int first = 2 * s.leader;
        s.ranks = {{first, 0, 1}, {first + 1, 1, 2}};
        s.shard_units = 2;
        s.leader = first;
      }
    }
    for (ReduceGroup& group : plan.reduce_groups) {
      std::vector<int> ranks;
      for (const int rank : group.ranks) {
        ranks.push_back(2 * rank);
        ranks.push_back(2 * rank + 1);
      }
      group.ranks = ranks;
    }
    ASSERT_TRUE(validate_plan(plan).ok()) << validate_plan(plan).to_string();
    c.spoil(plan);
    const Status status = validate_plan(plan);
    ASSERT_FALSE(status.ok()) << c.what;
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr(c.what));
    // What validate_plan refuses, a reader refuses too.
    EXPECT_FALSE(plan_from_json(plan_to_json(plan)).ok()) << c.what;
  }
}

TEST(ValidatePlan, UnequalTensorParallelismIsFineInFp32) {
  std::mt19937 random(3);
  bool seen = false;
  for (int round = 0; round < 200 && !seen; ++round) {
    Plan plan = random_plan(random);
    if (plan.numerics != Numerics::kFp32) continue;
    plan.numerics = Numerics::kExact;
    const Status status = validate_plan(plan);
    if (status.ok()) continue;
    EXPECT_THAT(status.message(), HasSubstr("use fp32"));
    seen = true;
  }
  EXPECT_TRUE(seen);
}

TEST(Numerics, NamesBothWays) {
  for (const Numerics numerics : {Numerics::kExact, Numerics::kFp32}) {
    EXPECT_EQ(parse_numerics(numerics_name(numerics)).value(), numerics);
  }
  EXPECT_FALSE(parse_numerics("bf16").ok());
}

TEST(PlanSummary, ListsUnequalPipelines) {
  Plan plan = make_regular_plan(layout(4, 2, 2, 4)).value();
  plan.pipelines[1].stages.pop_back();
  EXPECT_EQ(plan_summary(plan), "PP 2+1, 1f1b, 3 GPUs");
}

}  // namespace
}  // namespace flextrain::planner
