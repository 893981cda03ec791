// SPDX-License-Identifier: MIT
#include "tests/planner/random_plan.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "planner/schedule.h"

namespace flextrain::planner {
namespace {

int pick(std::mt19937& random, int low, int high) {
  return std::uniform_int_distribution<int>(low, high)(random);
}

// Layers 0 … L+1 dealt to stages × virtual stages chunks in order, with random No-Ops.
void deal_layers(std::mt19937& random, int layers, int virtual_stages, Pipeline& pipeline) {
  const int stages = static_cast<int>(pipeline.stages.size());
  const int chunks = stages * virtual_stages;
  std::vector<int> cuts = {0, layers + 2};
  for (int i = 1; i < chunks; ++i) cuts.push_back(pick(random, 1, layers + 1));
  std::sort(cuts.begin(), cuts.end());
  for (Stage& stage : pipeline.stages) stage.chunks.resize(virtual_stages);
  for (int chunk = 0; chunk < chunks; ++chunk) {
    auto& ids = pipeline.stages[chunk % stages].chunks[chunk / stages];
    for (int layer = cuts[chunk]; layer < cuts[chunk + 1]; ++layer) {
      if (layer > 0 && pick(random, 0, 4) == 0) ids.push_back(kNoOp);
      ids.push_back(layer);
    }
    if (ids.empty()) ids.push_back(kNoOp);
  }
}

}  // namespace

Plan random_plan(std::mt19937& random) {
  Plan plan;
  const bool exact = pick(random, 0, 1) == 0;
  plan.numerics = exact ? Numerics::kExact : Numerics::kFp32;
  plan.num_transformer_layers = pick(random, 1, 12);
  plan.micro_batch_size = pick(random, 1, 3);
  const int layers = plan.num_transformer_layers;
  const int uniform_tp = pick(random, 1, 2);
  const int kind = pick(random, 0, 2);
  plan.schedule = kind == 0 ? "1f1b" : kind == 1 ? "gpipe" : "explicit";
  plan.pipelines.resize(pick(random, 1, 4));
  int ranks = 0;
  for (Pipeline& pipeline : plan.pipelines) {
    pipeline.micro_batches = pick(random, 1, 6);
    pipeline.stages.resize(pick(random, 1, 4));
    const int virtual_stages = pipeline.stages.size() == 1 ? 1 : pick(random, 1, 3);
    deal_layers(random, layers, virtual_stages, pipeline);
    for (Stage& stage : pipeline.stages) {
      const int tensor_parallel = exact ? uniform_tp : pick(random, 1, 3);
      stage.device_type = exact || pick(random, 0, 1) == 0 ? "a100" : "rtx4090";
      int unit = 0;
      for (int i = 0; i < tensor_parallel; ++i) {
        const int share = exact ? 2 : pick(random, 1, 5);
        stage.ranks.push_back({ranks++, unit, unit + share});
        unit += share;
      }
      stage.shard_units = unit;
    }
    if (plan.schedule == "explicit") {
      const int stages = static_cast<int>(pipeline.stages.size());
      plan.explicit_actions.push_back(
          pick(random, 0, 1) == 0
              ? make_1f1b(stages, virtual_stages, pipeline.micro_batches).value()
              : make_gpipe(stages, virtual_stages, pipeline.micro_batches).value());
    }
  }
  // Any dense numbering of the ranks is a Plan, and any rank of a group may lead.
  std::vector<int> number(ranks);
  std::iota(number.begin(), number.end(), 0);
  std::shuffle(number.begin(), number.end(), random);
  std::vector<std::set<int>> holders(layers + 2);
  for (Pipeline& pipeline : plan.pipelines) {
    for (Stage& stage : pipeline.stages) {
      for (StageRank& rank : stage.ranks) rank.rank = number[rank.rank];
      stage.leader = stage.ranks[pick(random, 0, static_cast<int>(stage.ranks.size()) - 1)].rank;
      for (const auto& chunk : stage.chunks) {
        for (const LayerId layer : chunk) {
          if (layer == kNoOp) continue;
          for (const StageRank& rank : stage.ranks) holders[layer].insert(rank.rank);
        }
      }
    }
  }
  for (int layer = 0; layer < layers + 2; ++layer) {
    plan.reduce_groups.push_back({layer, {holders[layer].begin(), holders[layer].end()}});
    plan.recompute.push_back(static_cast<Recompute>(pick(random, 0, 2)));
  }
  plan.id = plan_id(plan);
  return plan;
}

namespace {

bool same_stage(const Stage& a, const Stage& b) {
  const auto same_rank = [](const StageRank& x, const StageRank& y) {
    return x.rank == y.rank && x.shard_begin == y.shard_begin && x.shard_end == y.shard_end;
  };
  return std::equal(a.ranks.begin(), a.ranks.end(), b.ranks.begin(), b.ranks.end(), same_rank) &&
         a.shard_units == b.shard_units && a.device_type == b.device_type && a.leader == b.leader &&
         a.chunks == b.chunks;
}

}  // namespace

bool same_plan(const Plan& a, const Plan& b) {
  const auto same_pipeline = [](const Pipeline& x, const Pipeline& y) {
    return x.micro_batches == y.micro_batches &&
           std::equal(x.stages.begin(), x.stages.end(), y.stages.begin(), y.stages.end(),
                      same_stage);
  };
  const auto same_group = [](const ReduceGroup& x, const ReduceGroup& y) {
    return x.layer == y.layer && x.ranks == y.ranks;
  };
  return a.version == b.version && a.id == b.id && a.numerics == b.numerics &&
         a.num_transformer_layers == b.num_transformer_layers &&
         a.micro_batch_size == b.micro_batch_size &&
         std::equal(a.pipelines.begin(), a.pipelines.end(), b.pipelines.begin(), b.pipelines.end(),
                    same_pipeline) &&
         std::equal(a.reduce_groups.begin(), a.reduce_groups.end(), b.reduce_groups.begin(),
                    b.reduce_groups.end(), same_group) &&
         a.recompute == b.recompute && a.context_parallel == b.context_parallel &&
         a.expert_parallel == b.expert_parallel && a.zero_stage == b.zero_stage &&
         a.schedule == b.schedule && a.explicit_actions == b.explicit_actions;
}

}  // namespace flextrain::planner
