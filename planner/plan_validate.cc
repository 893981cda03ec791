// SPDX-License-Identifier: MIT
// validate_plan: what every reader of a Plan may rely on.
#include <algorithm>
#include <set>

#include "planner/limits.h"
#include "planner/plan.h"
#include "planner/schedule.h"
#include "planner/schedule_family.h"

namespace flextrain::planner {
namespace {

Status check_scalars(const Plan& plan) {
  if (plan.version != Plan::kVersion) {
    return invalid_argument("Plan version {} is not the {} this program reads", plan.version,
                            Plan::kVersion);
  }
  if (plan.num_transformer_layers < 1 || plan.num_transformer_layers > kMaxLayers) {
    return invalid_argument("Plan: {} transformer layers, must be 1 ... {}",
                            plan.num_transformer_layers, kMaxLayers);
  }
  if (plan.micro_batch_size < 1) {
    return invalid_argument("Plan: micro-batch size {}, must be at least 1", plan.micro_batch_size);
  }
  if (plan.context_parallel != 1 || plan.expert_parallel != 1 || plan.zero_stage != 0) {
    return invalid_argument(
        "Plan: context parallel {}, expert parallel {}, ZeRO stage {}: only 1, 1, 0 are built",
        plan.context_parallel, plan.expert_parallel, plan.zero_stage);
  }
  if (plan.num_mtp_heads < 0 || plan.num_mtp_heads > kMaxMtpHeads) {
    return invalid_argument("Plan: {} MTP heads, must be 0 ... {}", plan.num_mtp_heads,
                            kMaxMtpHeads);
  }
  const size_t layers = static_cast<size_t>(num_layers(plan));
  if (plan.recompute.size() != layers) {
    return invalid_argument("Plan: {} recompute flags, {} needed (one per layer)",
                            plan.recompute.size(), layers);
  }
  if (plan.pipelines.empty()) return invalid_argument("Plan: no pipelines");
  return {};
}

// Every layer exactly once and in order; the embedding first, the head last.
Status check_layers(const Plan& plan, const Pipeline& pipeline, size_t index) {
  const size_t virtual_stages = pipeline.stages.front().chunks.size();
  if (virtual_stages < 1) return invalid_argument("Plan: pipeline {} has no chunks", index);
  if (virtual_stages > 1 && pipeline.stages.size() == 1) {
    return invalid_argument("Plan: pipeline {} has {} virtual stages but a single stage", index,
                            virtual_stages);
  }
  if (pipeline.stages.size() * virtual_stages > static_cast<size_t>(kMaxChunks)) {
    return invalid_argument("Plan: pipeline {} has more than {} chunks", index, kMaxChunks);
  }
  for (size_t s = 0; s < pipeline.stages.size(); ++s) {
    if (pipeline.stages[s].chunks.size() != virtual_stages) {
      return invalid_argument("Plan: stage {} of pipeline {} has {} chunks, stage 0 has {}", s,
                              index, pipeline.stages[s].chunks.size(), virtual_stages);
    }
  }
  const LayerId last = num_layers(plan) - 1;
  const ScheduleShape shape{static_cast<int>(pipeline.stages.size()),
                            static_cast<int>(virtual_stages), 1, plan.chunk_order};
  LayerId next = 0;
  for (size_t v = 0; v < virtual_stages; ++v) {
    for (size_t i = 0; i < pipeline.stages.size(); ++i) {
      const int s = shape.stage_at(static_cast<int>(v * pipeline.stages.size() + i));
      const auto& chunk = pipeline.stages[s].chunks[v];
      if (chunk.empty()) {
        return invalid_argument(
            "Plan: chunk {} of stage {} of pipeline {} is empty; a chunk without layers holds a "
            "No-Op ({})",
            v, s, index, kNoOp);
      }
      for (const LayerId layer : chunk) {
        if (layer == kNoOp && next != 0 && next <= last) continue;
        if (layer != next || next > last) {
          return invalid_argument(
              "Plan: pipeline {} holds layer {} at stage {}, chunk {} where {} is due; every layer "
              "0 ... {} must appear once and in order, the embedding first and the last one at the "
              "end",
              index, layer, s, v, next > last ? "nothing" : fmt::format("layer {}", next), last);
        }
        ++next;
      }
    }
  }
  if (next != last + 1) {
    return invalid_argument("Plan: pipeline {} lacks layer {} and those after it", index, next);
  }
  return {};
}

// The tensor-parallel group of one stage: leader inside, shards tiling [0, shard_units).
Status check_group(const Stage& stage, size_t pipeline, size_t index) {
  const auto fail = [&](const std::string& what) {
    return invalid_argument("Plan: stage {} of pipeline {} {}", index, pipeline, what);
  };
  if (stage.ranks.empty()) return fail("has no ranks");
  if (stage.shard_units < 1) return fail(fmt::format("has {} shard units", stage.shard_units));
  bool leader = false;
  std::vector<std::pair<int, int>> shards;
  for (const StageRank& rank : stage.ranks) {
    leader = leader || rank.rank == stage.leader;
    if (rank.shard_begin >= rank.shard_end) {
      return fail(fmt::format("gives rank {} the empty shard [{}, {})", rank.rank, rank.shard_begin,
                              rank.shard_end));
    }
    shards.emplace_back(rank.shard_begin, rank.shard_end);
  }
  if (stage.device_type.size() > 128 ||
      !std::all_of(stage.device_type.begin(), stage.device_type.end(),
                   [](char c) { return c > ' ' && c < 127; })) {
    return fail("has a device type that is no GRES type (printable ASCII without spaces)");
  }
  if (!leader)
    return fail(fmt::format("has leader {}, which is not one of its ranks", stage.leader));
  std::sort(shards.begin(), shards.end());
  int covered = 0;
  for (const auto& [begin, end] : shards) {
    if (begin != covered) {
      return fail(fmt::format("has shards that {} at unit {}",
                              begin < covered ? "overlap" : "leave a hole",
                              std::min(begin, covered)));
    }
    covered = end;
  }
  if (covered != stage.shard_units) {
    return fail(fmt::format("has shards that end at unit {} of {}", covered, stage.shard_units));
  }
  return {};
}

Status check_ranks(const Plan& plan) {
  std::vector<int> ranks;
  for (const Pipeline& pipeline : plan.pipelines) {
    for (const Stage& stage : pipeline.stages) {
      for (const StageRank& rank : stage.ranks) ranks.push_back(rank.rank);
    }
  }
  if (ranks.size() > static_cast<size_t>(kMaxRanks)) {
    return invalid_argument("Plan: {} ranks, more than {}", ranks.size(), kMaxRanks);
  }
  std::sort(ranks.begin(), ranks.end());
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] != static_cast<int>(i)) {
      return invalid_argument("Plan: ranks are not 0 ... {} each once: rank {} is {}",
                              ranks.size() - 1, i,
                              ranks[i] < static_cast<int>(i) ? "doubled before it" : "missing");
    }
  }
  return {};
}

// One group per layer with exactly the ranks that hold it.
Status check_reduce_groups(const Plan& plan) {
  const size_t layers = static_cast<size_t>(num_layers(plan));
  if (plan.reduce_groups.size() != layers) {
    return invalid_argument("Plan: {} reduce groups, {} needed (one per layer)",
                            plan.reduce_groups.size(), layers);
  }
  // Counted first: with ranks that are each there once, only groups that list as many are worth
  // comparing, and what is built is then no larger than the Plan's own lists.
  std::vector<size_t> counts(layers, 0);
  for (const Pipeline& pipeline : plan.pipelines) {
    for (const Stage& stage : pipeline.stages) {
      for (const auto& chunk : stage.chunks) {
        for (const LayerId layer : chunk) {
          if (layer != kNoOp) counts[layer] += stage.ranks.size();
        }
      }
    }
  }
  const auto differs = [&counts](size_t layer) {
    return invalid_argument(
        "Plan: reduce group of layer {} must list the {} ranks that hold the layer, ascending",
        layer, counts[layer]);
  };
  for (size_t layer = 0; layer < layers; ++layer) {
    if (plan.reduce_groups[layer].ranks.size() != counts[layer]) return differs(layer);
  }
  std::vector<std::set<int>> holders(layers);
  for (const Pipeline& pipeline : plan.pipelines) {
    for (const Stage& stage : pipeline.stages) {
      for (const auto& chunk : stage.chunks) {
        for (const LayerId layer : chunk) {
          if (layer == kNoOp) continue;
          for (const StageRank& rank : stage.ranks) holders[layer].insert(rank.rank);
        }
      }
    }
  }
  for (size_t layer = 0; layer < layers; ++layer) {
    const ReduceGroup& group = plan.reduce_groups[layer];
    if (group.layer != static_cast<LayerId>(layer)) {
      return invalid_argument("Plan: reduce group {} is for layer {}; they must ascend from 0",
                              layer, group.layer);
    }
    if (!std::equal(group.ranks.begin(), group.ranks.end(), holders[layer].begin(),
                    holders[layer].end())) {
      return differs(layer);
    }
  }
  return {};
}

// Class exact needs the same products on every rank that holds a layer (plan.h).
Status check_numerics(const Plan& plan) {
  if (plan.numerics != Numerics::kExact) return {};
  const Stage& first = plan.pipelines.front().stages.front();
  for (const Pipeline& pipeline : plan.pipelines) {
    for (const Stage& stage : pipeline.stages) {
      if (stage.device_type != first.device_type) {
        return invalid_argument(
            "Plan: numerics exact needs one device type, found '{}' and '{}'; use fp32",
            first.device_type, stage.device_type);
      }
      const bool same_split =
          stage.ranks.size() == first.ranks.size() &&
          std::all_of(stage.ranks.begin(), stage.ranks.end(), [&](const StageRank& rank) {
            return int64_t{rank.shard_end - rank.shard_begin} *
                       static_cast<int64_t>(stage.ranks.size()) ==
                   stage.shard_units;
          });
      if (!same_split) {
        return invalid_argument(
            "Plan: numerics exact needs the same number of equal shards on every stage; use fp32");
      }
    }
  }
  return {};
}

Status check_schedules(const Plan& plan) {
  if (plan.schedule != "explicit") {
    ASSIGN_OR_RETURN(const ScheduleFamily family, parse_plan_schedule(plan.schedule));
    if (!plan.explicit_actions.empty()) {
      return invalid_argument("Plan: schedule '{}' must not carry explicit actions", plan.schedule);
    }
    if (family != ScheduleFamily::kVShape) return {};
    for (const Pipeline& pipeline : plan.pipelines) {
      if (plan.chunk_order == ChunkOrder::kV && pipeline.stages.front().chunks.size() == 2) {
        continue;
      }
      return invalid_argument(
          "Plan: schedule v-shape needs chunk order v and two chunks on every stage");
    }
    return {};
  }
  if (plan.explicit_actions.size() != plan.pipelines.size()) {
    return invalid_argument("Plan: explicit actions for {} pipelines, {} needed",
                            plan.explicit_actions.size(), plan.pipelines.size());
  }
  for (size_t p = 0; p < plan.pipelines.size(); ++p) {
    const Pipeline& pipeline = plan.pipelines[p];
    if (plan.explicit_actions[p].size() != pipeline.stages.size()) {
      return invalid_argument("Plan: explicit actions for {} stages of pipeline {}, {} needed",
                              plan.explicit_actions[p].size(), p, pipeline.stages.size());
    }
    ASSIGN_OR_RETURN(const ScheduleShape shape, shape_of(plan, static_cast<int>(p)));
    const auto report = check_schedule(plan.explicit_actions[p], shape, ActionCosts{});
    if (!report.ok()) {
      return invalid_argument("Plan: explicit schedule of pipeline {}: {}", p,
                              report.status().message());
    }
  }
  return {};
}

}  // namespace

Status validate_plan(const Plan& plan) {
  RETURN_IF_ERROR(check_scalars(plan));
  int64_t micro_batches = 0;
  for (size_t p = 0; p < plan.pipelines.size(); ++p) {
    const Pipeline& pipeline = plan.pipelines[p];
    if (pipeline.stages.empty()) return invalid_argument("Plan: pipeline {} has no stages", p);
    if (pipeline.micro_batches < 1 || pipeline.micro_batches > kMaxMicroBatches) {
      return invalid_argument("Plan: pipeline {} has {} micro-batches, must be 1 ... {}", p,
                              pipeline.micro_batches, kMaxMicroBatches);
    }
    micro_batches += pipeline.micro_batches;
    for (size_t s = 0; s < pipeline.stages.size(); ++s) {
      RETURN_IF_ERROR(check_group(pipeline.stages[s], p, s));
    }
    RETURN_IF_ERROR(check_layers(plan, pipeline, p));
    const int64_t work =
        static_cast<int64_t>(pipeline.stages.size() * pipeline.stages.front().chunks.size()) *
        pipeline.micro_batches;
    if (work > kMaxUnitsOfWork) {
      return invalid_argument("Plan: pipeline {} has {} chunks x micro-batches, more than {}", p,
                              work, kMaxUnitsOfWork);
    }
  }
  if (micro_batches * plan.micro_batch_size > INT32_MAX) {
    return invalid_argument("Plan: global batch of {} sequences is too large",
                            micro_batches * plan.micro_batch_size);
  }
  RETURN_IF_ERROR(check_ranks(plan));
  RETURN_IF_ERROR(check_reduce_groups(plan));
  RETURN_IF_ERROR(check_numerics(plan));
  return check_schedules(plan);
}

}  // namespace flextrain::planner
