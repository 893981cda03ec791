// SPDX-License-Identifier: MIT
#include "planner/plan.h"

#include <algorithm>

#include "planner/limits.h"
#include "planner/placement.h"

namespace flextrain::planner {

std::string_view numerics_name(Numerics numerics) {
  return numerics == Numerics::kExact ? "exact" : "fp32";
}

Result<Numerics> parse_numerics(std::string_view text) {
  if (text == "exact") return Numerics::kExact;
  if (text == "fp32") return Numerics::kFp32;
  return invalid_argument("numerics '{}' is unknown; use exact or fp32", text);
}

namespace {

Status check_layout(const RegularLayout& layout) {
  const auto positive = [](int value, std::string_view name) {
    if (value >= 1) return Status::ok_status();
    return invalid_argument("layout: {} is {}, must be at least 1", name, value);
  };
  RETURN_IF_ERROR(positive(layout.num_transformer_layers, "number of transformer layers"));
  RETURN_IF_ERROR(positive(layout.data_parallel, "data parallel degree"));
  RETURN_IF_ERROR(positive(layout.pipeline_parallel, "pipeline parallel degree"));
  RETURN_IF_ERROR(positive(layout.virtual_stages, "number of virtual stages"));
  RETURN_IF_ERROR(positive(layout.global_batch, "global batch"));
  RETURN_IF_ERROR(positive(layout.micro_batch_size, "micro-batch size"));
  if (layout.virtual_stages > 1 && layout.pipeline_parallel == 1) {
    return invalid_argument("layout: {} virtual stages need a pipeline of 2 or more stages",
                            layout.virtual_stages);
  }
  const int64_t unit = int64_t{layout.data_parallel} * layout.micro_batch_size;
  if (layout.global_batch % unit != 0) {
    return invalid_argument(
        "layout: global batch {} is not a multiple of data parallel {} x micro-batch size {}",
        layout.global_batch, layout.data_parallel, layout.micro_batch_size);
  }
  if (int64_t{layout.data_parallel} * layout.pipeline_parallel > kMaxRanks) {
    return invalid_argument("layout: more than {} ranks", kMaxRanks);
  }
  if (layout.schedule != "1f1b" && layout.schedule != "gpipe") {
    return invalid_argument("layout: schedule '{}' is unknown; use 1f1b or gpipe", layout.schedule);
  }
  return {};
}

}  // namespace

Result<Plan> make_regular_plan(const RegularLayout& layout) {
  RETURN_IF_ERROR(check_layout(layout));
  ASSIGN_OR_RETURN(const LayerPlacement placement,
                   place_layers(layout.num_transformer_layers, layout.pipeline_parallel,
                                layout.virtual_stages, layout.layer_costs));
  Plan plan;
  plan.numerics = layout.numerics;
  plan.num_transformer_layers = layout.num_transformer_layers;
  plan.micro_batch_size = layout.micro_batch_size;
  plan.schedule = layout.schedule;
  const size_t layers = static_cast<size_t>(layout.num_transformer_layers) + 2;
  plan.recompute.assign(layers, false);
  plan.reduce_groups.resize(layers);
  for (size_t layer = 0; layer < layers; ++layer) {
    plan.reduce_groups[layer].layer = static_cast<LayerId>(layer);
  }
  int rank = 0;
  for (int d = 0; d < layout.data_parallel; ++d) {
    Pipeline pipeline;
    pipeline.micro_batches = layout.global_batch / (layout.data_parallel * layout.micro_batch_size);
    for (const auto& chunks : placement) {
      Stage stage;
      stage.ranks = {StageRank{.rank = rank, .shard_begin = 0, .shard_end = 1}};
      stage.leader = rank;
      stage.chunks = chunks;
      for (const auto& chunk : chunks) {
        for (const LayerId layer : chunk) {
          if (layer != kNoOp) plan.reduce_groups[layer].ranks.push_back(rank);
        }
      }
      pipeline.stages.push_back(std::move(stage));
      ++rank;
    }
    plan.pipelines.push_back(std::move(pipeline));
  }
  RETURN_IF_ERROR(validate_plan(plan));
  plan.id = plan_id(plan);
  return plan;
}

int num_ranks(const Plan& plan) {
  size_t count = 0;
  for (const Pipeline& pipeline : plan.pipelines) {
    for (const Stage& stage : pipeline.stages) count += stage.ranks.size();
  }
  return static_cast<int>(count);
}

int total_micro_batches(const Plan& plan) {
  int total = 0;
  for (const Pipeline& pipeline : plan.pipelines) total += pipeline.micro_batches;
  return total;
}

Result<RankPosition> find_rank(const Plan& plan, int rank) {
  for (size_t p = 0; p < plan.pipelines.size(); ++p) {
    const auto& stages = plan.pipelines[p].stages;
    for (size_t s = 0; s < stages.size(); ++s) {
      for (size_t i = 0; i < stages[s].ranks.size(); ++i) {
        if (stages[s].ranks[i].rank != rank) continue;
        return RankPosition{static_cast<int>(p), static_cast<int>(s), static_cast<int>(i)};
      }
    }
  }
  return not_found("the Plan has no rank {} (it has ranks 0 ... {})", rank, num_ranks(plan) - 1);
}

std::string plan_summary(const Plan& plan) {
  // Equal pipelines read "PP 4 x DP 2"; others list their stages: "PP 3+2".
  std::string stages;
  bool equal = true;
  size_t virtual_stages = 1, tensor_parallel = 1;
  for (const Pipeline& pipeline : plan.pipelines) {
    if (pipeline.stages.size() != plan.pipelines.front().stages.size()) equal = false;
    if (!stages.empty()) stages += '+';
    stages += std::to_string(pipeline.stages.size());
    for (const Stage& stage : pipeline.stages) {
      virtual_stages = std::max(virtual_stages, stage.chunks.size());
      tensor_parallel = std::max(tensor_parallel, stage.ranks.size());
    }
  }
  std::string text = "PP ";
  if (equal && !plan.pipelines.empty()) {
    text += fmt::format("{} x DP {}", plan.pipelines.front().stages.size(), plan.pipelines.size());
  } else {
    text += stages;
  }
  if (tensor_parallel > 1) text += fmt::format(" x TP up to {}", tensor_parallel);
  if (virtual_stages > 1) text += fmt::format(", {} virtual stages", virtual_stages);
  return text + fmt::format(", {}, {} GPU{}", plan.schedule, num_ranks(plan),
                            num_ranks(plan) == 1 ? "" : "s");
}

}  // namespace flextrain::planner
