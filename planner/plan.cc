// SPDX-License-Identifier: MIT
#include "planner/plan.h"

#include <algorithm>

#include "planner/limits.h"
#include "planner/placement.h"
#include "planner/schedule_family.h"

namespace flextrain::planner {

std::string_view numerics_name(Numerics numerics) {
  return numerics == Numerics::kExact ? "exact" : "fp32";
}

Result<Numerics> parse_numerics(std::string_view text) {
  if (text == "exact") return Numerics::kExact;
  if (text == "fp32") return Numerics::kFp32;
  return invalid_argument("numerics '{}' is unknown; use exact or fp32", text);
}

std::string_view recompute_name(Recompute recompute) {
  switch (recompute) {
    case Recompute::kNone:
      return "none";
    case Recompute::kSelective:
      return "selective";
    case Recompute::kFull:
      return "full";
  }
  return "none";
}

Result<Recompute> parse_recompute(std::string_view text) {
  for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
    if (text == recompute_name(recompute)) return recompute;
  }
  return invalid_argument("recompute '{}' is unknown; use none, selective or full", text);
}

int num_layers(int num_transformer_layers, int num_mtp_heads) {
  return num_transformer_layers + 2 + 2 * num_mtp_heads;
}

int num_layers(const Plan& plan) {
  return num_layers(plan.num_transformer_layers, plan.num_mtp_heads);
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
  if (layout.num_mtp_heads < 0 || layout.num_mtp_heads > kMaxMtpHeads) {
    return invalid_argument("layout: {} MTP heads, must be 0 ... {}", layout.num_mtp_heads,
                            kMaxMtpHeads);
  }
  ASSIGN_OR_RETURN(const ScheduleFamily family, parse_plan_schedule(layout.schedule));
  if (family == ScheduleFamily::kVShape && layout.virtual_stages != 2) {
    return invalid_argument("layout: schedule v-shape needs 2 virtual stages, not {}",
                            layout.virtual_stages);
  }
  return {};
}

}  // namespace

Result<Plan> make_regular_plan(const RegularLayout& layout) {
  RETURN_IF_ERROR(check_layout(layout));
  PlacementRequest request;
  request.num_transformer_layers = layout.num_transformer_layers;
  request.num_mtp_heads = layout.num_mtp_heads;
  request.pipeline_parallel = layout.pipeline_parallel;
  request.virtual_stages = layout.virtual_stages;
  request.order = layout.schedule == "v-shape" ? ChunkOrder::kV : ChunkOrder::kLoop;
  request.costs = layout.layer_costs;
  request.no_ops = layout.no_ops;
  request.empty_stages = layout.empty_stages;
  ASSIGN_OR_RETURN(const LayerPlacement placement, place_layers(request));
  Plan plan;
  plan.numerics = layout.numerics;
  plan.num_transformer_layers = layout.num_transformer_layers;
  plan.micro_batch_size = layout.micro_batch_size;
  plan.schedule = layout.schedule;
  plan.chunk_order = request.order;
  plan.num_mtp_heads = layout.num_mtp_heads;
  const size_t layers =
      static_cast<size_t>(num_layers(layout.num_transformer_layers, layout.num_mtp_heads));
  plan.recompute.assign(layers, Recompute::kNone);
  for (LayerId layer = 1; layer < static_cast<LayerId>(layers); ++layer) {
    if (is_block(plan, layer)) plan.recompute[layer] = layout.recompute;
  }
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

bool is_block(const Plan& plan, LayerId layer) {
  const int layers = plan.num_transformer_layers;
  if (layer >= 1 && layer <= layers) return true;
  return layer > layers + 1 && layer < num_layers(plan) && (layer - layers) % 2 == 0;
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
  if (plan.num_mtp_heads > 0) text += fmt::format(", {} MTP heads", plan.num_mtp_heads);
  const auto recomputed = std::max_element(plan.recompute.begin(), plan.recompute.end());
  if (recomputed != plan.recompute.end() && *recomputed != Recompute::kNone) {
    text += fmt::format(", {} recompute", recompute_name(*recomputed));
  }
  return text + fmt::format(", {}, {} GPU{}", plan.schedule, num_ranks(plan),
                            num_ranks(plan) == 1 ? "" : "s");
}

}  // namespace flextrain::planner
