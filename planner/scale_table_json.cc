// SPDX-License-Identifier: MIT
// JSON of the scale table and of the profile.
#include "planner/json_fields.h"
#include "planner/limits.h"
#include "planner/scale_table.h"

namespace flextrain::planner {
namespace {

std::string_view source_name(PredictionSource source) {
  switch (source) {
    case PredictionSource::kModel:
      return "model";
    case PredictionSource::kProfile:
      return "profile";
    case PredictionSource::kMeasured:
      return "measured";
  }
  return "model";
}

Result<PredictionSource> parse_source(std::string_view text) {
  for (const PredictionSource source :
       {PredictionSource::kModel, PredictionSource::kProfile, PredictionSource::kMeasured}) {
    if (text == source_name(source)) return source;
  }
  return invalid_argument("source '{}' is unknown", text);
}

Result<ScaleEntry> read_entry(const Json& json) {
  ScaleEntry entry;
  ASSIGN_OR_RETURN(entry.shape.device_type, string_field(json, "device_type"));
  ASSIGN_OR_RETURN(entry.shape.gpus_per_node, int_field(json, "gpus_per_node", 0));
  ASSIGN_OR_RETURN(entry.shape.nodes, int_field(json, "nodes", 0));
  ASSIGN_OR_RETURN(entry.shape.gpus, int_field(json, "gpus", 1, kMaxRanks));
  ASSIGN_OR_RETURN(const Json* plan, json_field(json, "plan"));
  ASSIGN_OR_RETURN(entry.plan, plan_from_json(*plan));
  ASSIGN_OR_RETURN(entry.step_seconds, amount_field(json, "step_seconds"));
  ASSIGN_OR_RETURN(entry.tokens_per_second, amount_field(json, "tokens_per_second"));
  ASSIGN_OR_RETURN(entry.peak_memory_bytes, int64_field(json, "peak_memory_bytes", 0));
  ASSIGN_OR_RETURN(const std::string source, string_field(json, "source"));
  ASSIGN_OR_RETURN(entry.source, parse_source(source));
  ASSIGN_OR_RETURN(entry.model_step_seconds, amount_field(json, "model_step_seconds"));
  // Later additions: tables without them are older.
  if (json.contains("predicted_step_seconds")) {
    ASSIGN_OR_RETURN(entry.predicted_step_seconds, amount_field(json, "predicted_step_seconds"));
  }
  if (json.contains("overhead_seconds")) {
    ASSIGN_OR_RETURN(entry.overhead_seconds, amount_field(json, "overhead_seconds"));
  }
  if (json.contains("fits")) {
    ASSIGN_OR_RETURN(entry.fits, bool_field(json, "fits"));
  }
  ASSIGN_OR_RETURN(entry.kept, bool_field(json, "kept"));
  ASSIGN_OR_RETURN(entry.drop_rule, string_field(json, "drop_rule"));
  if (num_ranks(entry.plan) != entry.shape.gpus) {
    return invalid_argument("an entry of {} GPUs has a Plan of {}", entry.shape.gpus,
                            num_ranks(entry.plan));
  }
  return entry;
}

Result<ScaleTable> read_table(const Json& json) {
  ASSIGN_OR_RETURN(const int version, int_field(json, "version"));
  if (version != ScaleTable::kVersion) {
    return invalid_argument("version {} is not the {} this program reads", version,
                            ScaleTable::kVersion);
  }
  ScaleTable table;
  ASSIGN_OR_RETURN(table.measured_gpus, int_field(json, "measured_gpus", 0, kMaxRanks));
  if (json.contains("note")) {
    ASSIGN_OR_RETURN(table.note, string_field(json, "note"));
  }
  ASSIGN_OR_RETURN(const Json* entries, array_field(json, "entries", kMaxRanks));
  for (const Json& element : *entries) {
    ASSIGN_OR_RETURN(ScaleEntry entry, read_entry(element));
    if (!table.entries.empty() && table.entries.back().shape.gpus >= entry.shape.gpus) {
      return invalid_argument("entries must ascend by GPU count, {} follows {}", entry.shape.gpus,
                              table.entries.back().shape.gpus);
    }
    table.entries.push_back(std::move(entry));
  }
  return table;
}

struct ScalingName {
  PhaseScaling scaling;
  std::string_view name;
};
constexpr ScalingName kScalingNames[] = {{PhaseScaling::kFixed, "fixed"},
                                         {PhaseScaling::kPerGpu, "per_gpu"},
                                         {PhaseScaling::kPerByte, "per_byte"}};

Result<StartPhase> read_phase(const Json& json) {
  StartPhase phase;
  ASSIGN_OR_RETURN(phase.name, string_field(json, "name"));
  ASSIGN_OR_RETURN(phase.seconds, amount_field(json, "seconds"));
  ASSIGN_OR_RETURN(const std::string scaling, string_field(json, "scaling"));
  for (const ScalingName& known : kScalingNames) {
    if (known.name != scaling) continue;
    phase.scaling = known.scaling;
    return phase;
  }
  return invalid_argument("scaling '{}' is unknown; use fixed, per_gpu or per_byte", scaling);
}

// The parts of a layer that were measured apart; absent = not.
Status read_parts(const Json& json, LayerProfile& layer) {
  if (json.contains("wgrad")) {
    ASSIGN_OR_RETURN(layer.wgrad, amount_field(json, "wgrad"));
  }
  if (json.contains("selective_seconds")) {
    ASSIGN_OR_RETURN(layer.selective_seconds, amount_field(json, "selective_seconds"));
  }
  const std::pair<const char*, int64_t*> sizes[] = {
      {"optimizer_bytes", &layer.optimizer_bytes},
      {"gradient_bytes", &layer.gradient_bytes},
      {"selective_bytes", &layer.selective_bytes},
      {"working_bytes", &layer.working_bytes},
      {"gradient_scratch_bytes", &layer.gradient_scratch_bytes},
      {"kept_bytes", &layer.kept_bytes}};
  for (const auto& [key, value] : sizes) {
    if (!json.contains(key)) continue;
    ASSIGN_OR_RETURN(*value, int64_field(json, key, 0));
  }
  if (json.contains("needs_layer")) {
    ASSIGN_OR_RETURN(layer.needs_layer, int_field(json, "needs_layer", 0, kMaxLayerId));
  }
  return {};
}

Result<StepProfile> read_profile(const Json& json) {
  StepProfile profile;
  ASSIGN_OR_RETURN(const Json* layers, array_field(json, "layers", kMaxLayerId + 1));
  for (const Json& element : *layers) {
    LayerProfile layer;
    ASSIGN_OR_RETURN(layer.forward, amount_field(element, "forward"));
    ASSIGN_OR_RETURN(layer.backward, amount_field(element, "backward"));
    ASSIGN_OR_RETURN(layer.static_bytes, int64_field(element, "static_bytes", 0));
    ASSIGN_OR_RETURN(layer.activation_bytes, int64_field(element, "activation_bytes", 0));
    RETURN_IF_ERROR(read_parts(element, layer));
    profile.layers.push_back(layer);
  }
  ASSIGN_OR_RETURN(profile.transfer_seconds, amount_field(json, "transfer_seconds"));
  ASSIGN_OR_RETURN(profile.reduce_seconds, amount_field(json, "reduce_seconds"));
  ASSIGN_OR_RETURN(profile.optimizer_seconds, amount_field(json, "optimizer_seconds"));
  ASSIGN_OR_RETURN(profile.step_seconds, amount_field(json, "step_seconds"));
  ASSIGN_OR_RETURN(profile.steps, int_field(json, "steps", 0));
  ASSIGN_OR_RETURN(profile.pipeline_parallel, int_field(json, "pipeline_parallel", 1));
  ASSIGN_OR_RETURN(profile.data_parallel, int_field(json, "data_parallel", 1));
  ASSIGN_OR_RETURN(profile.virtual_stages, int_field(json, "virtual_stages", 1));
  // Later additions: profiles without them are older.
  if (json.contains("control_seconds")) {
    ASSIGN_OR_RETURN(profile.control_seconds, amount_field(json, "control_seconds"));
  }
  if (json.contains("ranks_per_node")) {
    ASSIGN_OR_RETURN(profile.ranks_per_node, int_field(json, "ranks_per_node", 0, kMaxRanks));
    ASSIGN_OR_RETURN(profile.far_transfer_seconds, amount_field(json, "far_transfer_seconds"));
  }
  if (json.contains("hop_bytes")) {
    ASSIGN_OR_RETURN(profile.hop_bytes, int64_field(json, "hop_bytes", 0));
  }
  if (json.contains("rank_slowness")) {
    ASSIGN_OR_RETURN(const Json* ranks, array_field(json, "rank_slowness", kMaxRanks));
    for (const Json& element : *ranks) {
      if (!element.is_number()) return invalid_argument("rank_slowness holds numbers");
      profile.rank_slowness.push_back(element.get<double>());
    }
  }
  if (json.contains("start_phases")) {
    ASSIGN_OR_RETURN(const Json* phases, array_field(json, "start_phases", 64));
    for (const Json& element : *phases) {
      ASSIGN_OR_RETURN(StartPhase phase, read_phase(element));
      profile.start_phases.push_back(std::move(phase));
    }
  }
  return profile;
}

Json layer_to_json(const LayerProfile& layer) {
  Json json = {{"forward", layer.forward},
               {"backward", layer.backward},
               {"static_bytes", layer.static_bytes},
               {"activation_bytes", layer.activation_bytes}};
  if (layer.wgrad > 0) json["wgrad"] = layer.wgrad;
  if (layer.optimizer_bytes > 0) json["optimizer_bytes"] = layer.optimizer_bytes;
  if (layer.gradient_bytes > 0) json["gradient_bytes"] = layer.gradient_bytes;
  if (layer.selective_bytes > 0) json["selective_bytes"] = layer.selective_bytes;
  if (layer.selective_seconds > 0) json["selective_seconds"] = layer.selective_seconds;
  if (layer.working_bytes > 0) json["working_bytes"] = layer.working_bytes;
  if (layer.gradient_scratch_bytes > 0) {
    json["gradient_scratch_bytes"] = layer.gradient_scratch_bytes;
  }
  if (layer.kept_bytes > 0) json["kept_bytes"] = layer.kept_bytes;
  if (layer.needs_layer != kNoOp) json["needs_layer"] = layer.needs_layer;
  return json;
}

}  // namespace

Json profile_to_json(const StepProfile& profile) {
  Json layers = Json::array();
  for (const LayerProfile& layer : profile.layers) layers.push_back(layer_to_json(layer));
  Json json = {{"layers", std::move(layers)},
               {"transfer_seconds", profile.transfer_seconds},
               {"reduce_seconds", profile.reduce_seconds},
               {"optimizer_seconds", profile.optimizer_seconds},
               {"step_seconds", profile.step_seconds},
               {"steps", profile.steps},
               {"pipeline_parallel", profile.pipeline_parallel},
               {"data_parallel", profile.data_parallel},
               {"virtual_stages", profile.virtual_stages}};
  if (profile.control_seconds > 0) json["control_seconds"] = profile.control_seconds;
  if (profile.ranks_per_node > 0) {
    json["ranks_per_node"] = profile.ranks_per_node;
    json["far_transfer_seconds"] = profile.far_transfer_seconds;
  }
  if (profile.hop_bytes > 0) json["hop_bytes"] = profile.hop_bytes;
  if (!profile.rank_slowness.empty()) json["rank_slowness"] = profile.rank_slowness;
  if (profile.start_phases.empty()) return json;
  Json phases = Json::array();
  for (const StartPhase& phase : profile.start_phases) {
    std::string_view scaling;
    for (const ScalingName& known : kScalingNames) {
      if (known.scaling == phase.scaling) scaling = known.name;
    }
    phases.push_back({{"name", phase.name}, {"seconds", phase.seconds}, {"scaling", scaling}});
  }
  json["start_phases"] = std::move(phases);
  return json;
}

Result<StepProfile> profile_from_json(const Json& json) {
  Result<StepProfile> profile = read_profile(json);
  if (!profile.ok()) return profile.status().with_context("profile");
  return profile;
}

Json scale_table_to_json(const ScaleTable& table) {
  Json entries = Json::array();
  for (const ScaleEntry& entry : table.entries) {
    // "shape" repeats the four fields after it: agent and controller read the entry's key there.
    entries.push_back({{"shape",
                        {{"device_type", entry.shape.device_type},
                         {"gpus_per_node", entry.shape.gpus_per_node},
                         {"nodes", entry.shape.nodes},
                         {"gpus", entry.shape.gpus}}},
                       {"device_type", entry.shape.device_type},
                       {"gpus_per_node", entry.shape.gpus_per_node},
                       {"nodes", entry.shape.nodes},
                       {"gpus", entry.shape.gpus},
                       {"plan", plan_to_json(entry.plan)},
                       {"summary", plan_summary(entry.plan)},
                       {"step_seconds", entry.step_seconds},
                       {"tokens_per_second", entry.tokens_per_second},
                       {"peak_memory_bytes", entry.peak_memory_bytes},
                       {"source", source_name(entry.source)},
                       {"model_step_seconds", entry.model_step_seconds},
                       {"predicted_step_seconds", entry.predicted_step_seconds},
                       {"overhead_seconds", entry.overhead_seconds},
                       {"fits", entry.fits},
                       {"kept", entry.kept},
                       {"drop_rule", entry.drop_rule}});
  }
  return {{"version", ScaleTable::kVersion},
          {"measured_gpus", table.measured_gpus},
          {"note", table.note},
          {"entries", std::move(entries)}};
}

Result<ScaleTable> scale_table_from_json(const Json& json) {
  Result<ScaleTable> table = read_table(json);
  if (!table.ok()) return table.status().with_context("scale table");
  return table;
}

}  // namespace flextrain::planner
