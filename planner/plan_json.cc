// SPDX-License-Identifier: MIT
// The Plan's JSON. Keys are sorted by the library, so equal Plans have equal texts and ids.
//
//   {"version":1,"id":"…","numerics":"exact","num_transformer_layers":L,"micro_batch_size":1,
//    "pipelines":[{"micro_batches":m,"stages":[{"ranks":[[rank,shard_begin,shard_end],…],
//       "shard_units":1,"device_type":"","leader":0,"chunks":[[0,1,2,-1],…]},…]},…],
//    "reduce_groups":[[0,4],…],        ranks per layer id 0 … L+1
//    "recompute":[false,…],            per layer id: false, true (full) or "selective"
//    "num_mtp_heads":D,"chunk_order":"v"   only when not 0 and not the loop
//    "context_parallel":1,"expert_parallel":1,"zero_stage":0,"schedule":"1f1b",
//    "explicit_actions":[[[["Forward",micro_batch,chunk,peer,slot],…],…],…]}   explicit only
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "planner/json_fields.h"
#include "planner/limits.h"
#include "planner/plan.h"
#include "planner/schedule.h"

namespace flextrain::planner {
namespace {

// Bound on any list in the text; validate_plan narrows it.
constexpr size_t kMaxList = size_t{1} << 26;

Json stage_to_json(const Stage& stage) {
  Json ranks = Json::array();
  for (const StageRank& rank : stage.ranks) {
    ranks.push_back({rank.rank, rank.shard_begin, rank.shard_end});
  }
  return {{"ranks", std::move(ranks)},
          {"shard_units", stage.shard_units},
          {"device_type", stage.device_type},
          {"leader", stage.leader},
          {"chunks", stage.chunks}};
}

Json content_to_json(const Plan& plan) {
  Json pipelines = Json::array();
  for (const Pipeline& pipeline : plan.pipelines) {
    Json stages = Json::array();
    for (const Stage& stage : pipeline.stages) stages.push_back(stage_to_json(stage));
    pipelines.push_back({{"micro_batches", pipeline.micro_batches}, {"stages", std::move(stages)}});
  }
  Json groups = Json::array();
  for (const ReduceGroup& group : plan.reduce_groups) groups.push_back(group.ranks);
  Json recompute = Json::array();
  for (const Recompute value : plan.recompute) {
    if (value == Recompute::kSelective) {
      recompute.push_back(recompute_name(value));
    } else {
      recompute.push_back(value == Recompute::kFull);
    }
  }
  Json json = {{"version", plan.version},
               {"numerics", numerics_name(plan.numerics)},
               {"num_transformer_layers", plan.num_transformer_layers},
               {"micro_batch_size", plan.micro_batch_size},
               {"pipelines", std::move(pipelines)},
               {"reduce_groups", std::move(groups)},
               {"recompute", std::move(recompute)},
               {"context_parallel", plan.context_parallel},
               {"expert_parallel", plan.expert_parallel},
               {"zero_stage", plan.zero_stage},
               {"schedule", plan.schedule}};
  if (plan.num_mtp_heads != 0) json["num_mtp_heads"] = plan.num_mtp_heads;
  if (plan.chunk_order == ChunkOrder::kV) json["chunk_order"] = "v";
  if (plan.explicit_actions.empty()) return json;
  Json all = Json::array();
  for (const auto& pipeline : plan.explicit_actions) {
    Json stages = Json::array();
    for (const auto& actions : pipeline) {
      Json list = Json::array();
      for (const Action& action : actions) {
        list.push_back({action_kind_name(action.kind), action.micro_batch, action.chunk,
                        action.peer, action.slot});
      }
      stages.push_back(std::move(list));
    }
    all.push_back(std::move(stages));
  }
  json["explicit_actions"] = std::move(all);
  return json;
}

// Text that validate_plan would refuse (a device type in another encoding) must not throw here.
std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<std::vector<int>> read_ints(const Json& json, std::string_view what, int minimum,
                                   int maximum) {
  if (!json.is_array()) return invalid_argument("'{}' must be a list of whole numbers", what);
  std::vector<int> values;
  values.reserve(json.size());
  for (const Json& element : json) {
    ASSIGN_OR_RETURN(const int value, json_int(element, what, minimum, maximum));
    values.push_back(value);
  }
  return values;
}

Result<Stage> read_stage(const Json& json) {
  Stage stage;
  ASSIGN_OR_RETURN(const Json* ranks, array_field(json, "ranks", kMaxRanks));
  for (const Json& element : *ranks) {
    ASSIGN_OR_RETURN(const std::vector<int> values,
                     read_ints(element, "ranks", 0, std::numeric_limits<int>::max()));
    if (values.size() != 3) {
      return invalid_argument("'ranks' must hold [rank, shard_begin, shard_end] triples");
    }
    stage.ranks.push_back({values[0], values[1], values[2]});
  }
  ASSIGN_OR_RETURN(stage.shard_units, int_field(json, "shard_units", 1));
  ASSIGN_OR_RETURN(stage.device_type, string_field(json, "device_type"));
  ASSIGN_OR_RETURN(stage.leader, int_field(json, "leader", 0));
  ASSIGN_OR_RETURN(const Json* chunks, array_field(json, "chunks", kMaxChunks));
  for (const Json& element : *chunks) {
    ASSIGN_OR_RETURN(std::vector<int> chunk, read_ints(element, "chunks", kNoOp, kMaxLayerId));
    stage.chunks.push_back(std::move(chunk));
  }
  return stage;
}

Result<Pipeline> read_pipeline(const Json& json) {
  Pipeline pipeline;
  ASSIGN_OR_RETURN(pipeline.micro_batches, int_field(json, "micro_batches", 1, kMaxMicroBatches));
  ASSIGN_OR_RETURN(const Json* stages, array_field(json, "stages", kMaxChunks));
  for (const Json& element : *stages) {
    ASSIGN_OR_RETURN(Stage stage, read_stage(element));
    pipeline.stages.push_back(std::move(stage));
  }
  return pipeline;
}

Result<Action> read_action(const Json& json) {
  if (!json.is_array() || json.size() != 5 || !json[0].is_string()) {
    return invalid_argument(
        "'explicit_actions' must hold [kind, micro_batch, chunk, peer, slot] lists");
  }
  Action action;
  ASSIGN_OR_RETURN(action.kind, parse_action_kind(json[0].get_ref<const std::string&>()));
  ASSIGN_OR_RETURN(action.micro_batch, json_int(json[1], "micro_batch", 0));
  ASSIGN_OR_RETURN(action.chunk, json_int(json[2], "chunk", 0));
  ASSIGN_OR_RETURN(action.peer, json_int(json[3], "peer", -1));
  ASSIGN_OR_RETURN(action.slot, json_int(json[4], "slot", 0));
  return action;
}

Result<Schedule> read_schedule(const Json& json) {
  if (!json.is_array()) return invalid_argument("'explicit_actions' must hold lists of stages");
  Schedule schedule;
  for (const Json& stage : json) {
    if (!stage.is_array()) return invalid_argument("'explicit_actions' must hold lists of actions");
    StageActions actions;
    actions.reserve(stage.size());
    for (const Json& element : stage) {
      ASSIGN_OR_RETURN(const Action action, read_action(element));
      actions.push_back(action);
    }
    schedule.push_back(std::move(actions));
  }
  return schedule;
}

Result<Plan> read_plan(const Json& json) {
  Plan plan;
  ASSIGN_OR_RETURN(plan.version, int_field(json, "version"));
  if (plan.version != Plan::kVersion) {
    return invalid_argument("version {} is not the {} this program reads", plan.version,
                            Plan::kVersion);
  }
  ASSIGN_OR_RETURN(const std::string numerics, string_field(json, "numerics"));
  ASSIGN_OR_RETURN(plan.numerics, parse_numerics(numerics));
  ASSIGN_OR_RETURN(plan.num_transformer_layers,
                   int_field(json, "num_transformer_layers", 1, kMaxLayers));
  ASSIGN_OR_RETURN(plan.micro_batch_size, int_field(json, "micro_batch_size", 1));
  ASSIGN_OR_RETURN(const Json* pipelines, array_field(json, "pipelines", kMaxRanks));
  for (const Json& element : *pipelines) {
    ASSIGN_OR_RETURN(Pipeline pipeline, read_pipeline(element));
    plan.pipelines.push_back(std::move(pipeline));
  }
  ASSIGN_OR_RETURN(const Json* groups, array_field(json, "reduce_groups", kMaxLayerId + 1));
  for (const Json& element : *groups) {
    ReduceGroup group;
    group.layer = static_cast<LayerId>(plan.reduce_groups.size());
    ASSIGN_OR_RETURN(group.ranks, read_ints(element, "reduce_groups", 0, kMaxRanks));
    plan.reduce_groups.push_back(std::move(group));
  }
  ASSIGN_OR_RETURN(const Json* recompute, array_field(json, "recompute", kMaxLayerId + 1));
  for (const Json& element : *recompute) {
    if (element == "selective") {
      plan.recompute.push_back(Recompute::kSelective);
    } else if (element.is_boolean()) {
      plan.recompute.push_back(element.get<bool>() ? Recompute::kFull : Recompute::kNone);
    } else {
      return invalid_argument("'recompute' must hold true, false or \"selective\"");
    }
  }
  ASSIGN_OR_RETURN(plan.context_parallel, int_field(json, "context_parallel"));
  ASSIGN_OR_RETURN(plan.expert_parallel, int_field(json, "expert_parallel"));
  ASSIGN_OR_RETURN(plan.zero_stage, int_field(json, "zero_stage"));
  ASSIGN_OR_RETURN(plan.schedule, string_field(json, "schedule"));
  if (json.contains("num_mtp_heads")) {
    ASSIGN_OR_RETURN(plan.num_mtp_heads, int_field(json, "num_mtp_heads", 0, kMaxMtpHeads));
  }
  if (json.contains("chunk_order")) {
    ASSIGN_OR_RETURN(const std::string order, string_field(json, "chunk_order"));
    if (order != "v" && order != "loop") {
      return invalid_argument("'chunk_order' must be \"loop\" or \"v\", not \"{}\"", order);
    }
    plan.chunk_order = order == "v" ? ChunkOrder::kV : ChunkOrder::kLoop;
  }
  if (json.contains("explicit_actions")) {
    ASSIGN_OR_RETURN(const Json* actions, array_field(json, "explicit_actions", kMaxList));
    for (const Json& element : *actions) {
      ASSIGN_OR_RETURN(Schedule schedule, read_schedule(element));
      plan.explicit_actions.push_back(std::move(schedule));
    }
  }
  RETURN_IF_ERROR(validate_plan(plan));
  plan.id = plan_id(plan);
  if (json.contains("id")) {
    ASSIGN_OR_RETURN(const std::string id, string_field(json, "id"));
    if (id != plan.id) {
      return invalid_argument(
          "its id is {} but its content has {}: the Plan was altered; remove the id to accept it",
          id, plan.id);
    }
  }
  return plan;
}

}  // namespace

Json plan_to_json(const Plan& plan) {
  Json json = content_to_json(plan);
  json["id"] = plan.id.empty() ? plan_id(plan) : plan.id;
  return json;
}

Result<Plan> plan_from_json(const Json& json) {
  Result<Plan> plan = read_plan(json);
  if (!plan.ok()) return plan.status().with_context("Plan");
  return plan;
}

std::string plan_id(const Plan& plan) {
  const std::string text = dump(content_to_json(plan));
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace flextrain::planner
