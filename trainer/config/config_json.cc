// SPDX-License-Identifier: MIT
// A configuration as JSON, as manifests keep it, and which of two configurations fix one model.
#include "base/text.h"
#include "trainer/config/config_fields.h"
#include "trainer/config/config_reader.h"

namespace flextrain::trainer {
namespace {

Json field_json(const ConfigField& field) {
  return std::visit(
      [](auto* target) -> Json {
        if constexpr (std::is_same_v<decltype(target), planner::Numerics*>) {
          return std::string(planner::numerics_name(*target));
        } else {
          return *target;
        }
      },
      field.target);
}

Result<ConfigValue> json_value(const Json& json, const ConfigField& field) {
  if (json.is_boolean()) return ConfigValue(json.get<bool>());
  if (json.is_number_integer()) return ConfigValue(json.get<int64_t>());
  if (json.is_number_float()) return ConfigValue(json.get<double>());
  if (json.is_string()) return ConfigValue(json.get<std::string>());
  return invalid_argument("{}.{} must be {}, not {}", field.section, field.name,
                          describe_field(field), json.type_name());
}

// Keys that fix what the stored tensors mean. Everything else (batch, learning rate, paths, …) may
// change from one start to the next.
bool fixes_model(const ConfigField& field) {
  return field.section == "model" && field.name != "init_std";
}

}  // namespace

Json config_to_json(const TrainConfig& config) {
  TrainConfig copy = config;
  Json json = Json::object();
  for (const ConfigField& field : config_fields(copy)) {
    json[std::string(field.section)][std::string(field.name)] = field_json(field);
  }
  return json;
}

Result<TrainConfig> config_from_json(const Json& json) {
  if (!json.is_object()) return invalid_argument("the configuration must be a JSON object");
  TrainConfig config;
  for (const ConfigField& field : config_fields(config)) {
    const auto section = json.find(std::string(field.section));
    if (section == json.end() || !section->is_object()) continue;
    const auto entry = section->find(std::string(field.name));
    if (entry == section->end()) continue;
    ASSIGN_OR_RETURN(const ConfigValue value, json_value(*entry, field));
    RETURN_IF_ERROR(assign_field(field, value));
  }
  RETURN_IF_ERROR(validate_config(config));
  return config;
}

std::vector<std::string> model_differences(const TrainConfig& current, const TrainConfig& stored) {
  TrainConfig a = current, b = stored;
  const std::vector<ConfigField> ours = config_fields(a), theirs = config_fields(b);
  std::vector<std::string> differences;
  for (size_t i = 0; i < ours.size(); ++i) {
    if (!fixes_model(ours[i])) continue;
    const Json here = field_json(ours[i]), there = field_json(theirs[i]);
    if (here == there) continue;
    differences.push_back(fmt::format("{}.{} is {} here but {} in the checkpoint", ours[i].section,
                                      ours[i].name, here.dump(), there.dump()));
  }
  return differences;
}

}  // namespace flextrain::trainer
