// SPDX-License-Identifier: MIT
#include "trainer/checkpoint/manifest.h"

#include "base/bounded_json.h"
#include "base/json_number.h"
#include "trainer/checkpoint/hash.h"
#include "trainer/config/config_reader.h"

namespace flextrain::trainer {
namespace {

constexpr int64_t kMaxCount = int64_t{1} << 56;  // steps and samples: no later sum overflows
constexpr int kMaxScale = 1024;                  // beyond the exponents of a float
constexpr const char* kFormat = "flextrain-checkpoint";

// One text per value: sorted keys, and bytes that are no UTF-8 (a strange path) replaced instead of
// thrown about.
std::string canonical(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

Json body_json(const Manifest& manifest) {
  Json layers = Json::array();
  for (const LayerEntry& layer : manifest.layers) layers.push_back(layer_entry_to_json(layer));
  return {{"format", kFormat},
          {"version", Manifest::kVersion},
          {"step", manifest.cursor.step},
          {"consumed_samples", manifest.cursor.consumed_samples},
          {"accumulation_scale", manifest.cursor.accumulation_scale},
          {"seed", manifest.cursor.seed},
          {"fingerprint", manifest.fingerprint},
          {"data_hash", manifest.data_hash},
          {"config", config_to_json(manifest.config)},
          {"plan", planner::plan_to_json(manifest.plan)},
          {"layers", std::move(layers)},
          {"digest", manifest.digest}};
}

}  // namespace

std::string manifest_to_text(const Manifest& manifest) {
  Json json = body_json(manifest);
  json["manifest_xxh3"] = xxh3_hex(canonical(json, -1));
  return canonical(json, 1) + "\n";
}

Result<Manifest> manifest_from_text(std::string_view text) {
  ASSIGN_OR_RETURN(Json json, parse_bounded_json(text, "manifest.json"));
  if (!json.is_object() || json.value("format", Json()) != kFormat) {
    return data_loss("manifest.json is no flextrain checkpoint manifest");
  }
  Json body = json;
  body.erase("manifest_xxh3");
  // Compared as text too: white space is no place for damage to hide.
  if (json.value("manifest_xxh3", Json()) != xxh3_hex(canonical(body, -1)) ||
      canonical(json, 1) + "\n" != text) {
    return data_loss("manifest.json does not match its checksum: it is damaged");
  }
  Manifest manifest;
  const Result<int> version =
      decode_json("manifest.json", [&] { return whole_number<int>(json.at("version")); });
  if (!version.ok()) return data_loss("{}", version.status().message());
  if (*version != Manifest::kVersion) {
    return failed_precondition("manifest.json has format version {}, this release reads {}",
                               *version, Manifest::kVersion);
  }
  const Result<bool> decoded = decode_json("manifest.json", [&] {
    manifest.cursor.step = whole_number<int64_t>(json.at("step"));
    manifest.cursor.consumed_samples = whole_number<int64_t>(json.at("consumed_samples"));
    manifest.cursor.accumulation_scale = whole_number<int>(json.at("accumulation_scale"));
    manifest.cursor.seed = whole_number<uint64_t>(json.at("seed"));
    manifest.fingerprint = json.at("fingerprint").get<std::string>();
    manifest.data_hash = json.at("data_hash").get<std::string>();
    manifest.digest = json.at("digest").get<std::string>();
    return json.at("layers").is_array() && json.at("config").is_object();
  });
  if (!decoded.ok()) return data_loss("{}", decoded.status().message());
  if (!*decoded) return data_loss("manifest.json: layers or config have the wrong type");
  const TrainingCursor& at = manifest.cursor;
  if (at.step < 0 || at.step > kMaxCount || at.consumed_samples < 0 ||
      at.consumed_samples > kMaxCount || at.accumulation_scale < -kMaxScale ||
      at.accumulation_scale > kMaxScale) {
    return data_loss("manifest.json: step {}, consumed_samples {}, accumulation_scale {}: absurd",
                     at.step, at.consumed_samples, at.accumulation_scale);
  }
  ASSIGN_OR_RETURN(manifest.config, config_from_json(json["config"]));
  ASSIGN_OR_RETURN(manifest.plan, planner::plan_from_json(json["plan"]));
  for (const Json& item : json["layers"]) {
    ASSIGN_OR_RETURN(LayerEntry entry, layer_entry_from_json(item));
    if (entry.layer != static_cast<int>(manifest.layers.size())) {
      return data_loss("manifest.json: layer {} stands where layer {} is expected", entry.layer,
                       manifest.layers.size());
    }
    manifest.layers.push_back(std::move(entry));
  }
  if (static_cast<int>(manifest.layers.size()) != num_layers(manifest.config.model)) {
    return data_loss("manifest.json lists {} layers, the model has {}", manifest.layers.size(),
                     num_layers(manifest.config.model));
  }
  return manifest;
}

}  // namespace flextrain::trainer
