// SPDX-License-Identifier: MIT
#include "trainer/checkpoint/layer_file.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>

#include "base/bounded_json.h"
#include "base/json_number.h"
#include "trainer/checkpoint/hash.h"

namespace flextrain::trainer {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian");

std::string stored_name(const std::string& name, TensorRole role) {
  if (role == TensorRole::kWeight) return name;
  return fmt::format("{}.{}", name, tensor_role_name(role));
}

// Elements of a shape, -1 when it is negative or absurd.
int64_t element_count(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t extent : shape) {
    if (extent < 0 || (extent > 0 && count > (int64_t{1} << 48) / extent)) return -1;
    count *= extent;
  }
  return count;
}

std::string values_hash(const std::vector<float>& values) {
  return xxh3_hex(values.data(), values.size() * sizeof(float));
}

Result<TensorRole> parse_role(std::string_view name) {
  for (const TensorRole role :
       {TensorRole::kWeight, TensorRole::kFirstMoment, TensorRole::kSecondMoment}) {
    if (tensor_role_name(role) == name) return role;
  }
  return invalid_argument("unknown tensor role '{}'", name);
}

}  // namespace

std::string layer_file_name(planner::LayerId layer) {
  return fmt::format("layer-{}.safetensors", layer);
}

std::string_view tensor_role_name(TensorRole role) {
  switch (role) {
    case TensorRole::kWeight:
      return "weight";
    case TensorRole::kFirstMoment:
      return "first_moment";
    case TensorRole::kSecondMoment:
      return "second_moment";
  }
  return "weight";
}

Result<EncodedLayer> encode_layer(const LayerState& state) {
  EncodedLayer encoded;
  encoded.entry.layer = state.layer;
  encoded.entry.file = layer_file_name(state.layer);
  Json header = Json::object();
  header["__metadata__"] = {{"format", "flextrain-layer"},
                            {"layer", fmt::format("{}", state.layer)}};
  int64_t offset = 0;
  std::set<std::string> names;
  for (const NamedTensor& tensor : state.tensors) {
    const std::string name = stored_name(tensor.name, tensor.role);
    if (element_count(tensor.shape) != static_cast<int64_t>(tensor.values.size())) {
      return invalid_argument("layer {}: tensor '{}' has {} values, its shape says {}", state.layer,
                              name, tensor.values.size(), element_count(tensor.shape));
    }
    if (!names.insert(name).second) {
      return invalid_argument("layer {}: tensor '{}' appears twice", state.layer, name);
    }
    const auto bytes = static_cast<int64_t>(tensor.values.size() * sizeof(float));
    header[name] = {
        {"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {offset, offset + bytes}}};
    encoded.entry.tensors.push_back(
        {tensor.name, tensor.role, tensor.shape, values_hash(tensor.values)});
    offset += bytes;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  const uint64_t header_bytes = text.size();
  encoded.bytes.reserve(8 + text.size() + static_cast<size_t>(offset));
  encoded.bytes.append(reinterpret_cast<const char*>(&header_bytes), 8);
  encoded.bytes += text;
  for (const NamedTensor& tensor : state.tensors) {
    encoded.bytes.append(reinterpret_cast<const char*>(tensor.values.data()),
                         tensor.values.size() * sizeof(float));
  }
  encoded.entry.bytes = static_cast<int64_t>(encoded.bytes.size());
  encoded.entry.xxh3 = xxh3_hex(encoded.bytes);
  return encoded;
}

Result<LayerState> decode_layer(std::string_view bytes, const LayerEntry& entry) {
  if (static_cast<int64_t>(bytes.size()) != entry.bytes) {
    return data_loss("{} has {} bytes instead of {}: it is incomplete", entry.file, bytes.size(),
                     entry.bytes);
  }
  if (xxh3_hex(bytes) != entry.xxh3) {
    return data_loss("{} does not match its checksum: it is damaged", entry.file);
  }
  // From here on the bytes are those that were written; the checks below are against a manifest and
  // a file that do not belong together.
  uint64_t header_bytes = 0;
  if (bytes.size() >= 8) std::memcpy(&header_bytes, bytes.data(), 8);
  if (bytes.size() < 8 || header_bytes > bytes.size() - 8) {
    return data_loss("{} is no safetensors file", entry.file);
  }
  ASSIGN_OR_RETURN(const Json header,
                   parse_bounded_json(bytes.substr(8, header_bytes), entry.file));
  const std::string_view data = bytes.substr(8 + header_bytes);
  LayerState state;
  state.layer = entry.layer;
  for (const TensorEntry& wanted : entry.tensors) {
    const std::string name = stored_name(wanted.name, wanted.role);
    const auto read = decode_json(fmt::format("{}: tensor '{}'", entry.file, name), [&] {
      const Json& tensor = header.at(name);
      const auto offsets = whole_numbers<int64_t>(tensor.at("data_offsets"));
      const auto shape = whole_numbers<int64_t>(tensor.at("shape"));
      const int64_t count = element_count(shape);
      if (tensor.at("dtype") != "F32" || shape != wanted.shape || offsets.size() != 2 ||
          offsets[0] < 0 || offsets[1] < offsets[0] || count < 0 ||
          offsets[1] - offsets[0] != count * 4 || offsets[1] > static_cast<int64_t>(data.size())) {
        throw std::runtime_error("its type, shape or place differs from the manifest");
      }
      NamedTensor out{wanted.name, wanted.role, shape, {}};
      out.values.resize(static_cast<size_t>(count));
      // memcpy wants no null pointer, not even for nothing.
      if (count > 0) {
        std::memcpy(out.values.data(), data.data() + offsets[0], out.values.size() * sizeof(float));
      }
      return out;
    });
    if (!read.ok()) return data_loss("{}", read.status().message());
    if (values_hash(read->values) != wanted.xxh3) {
      return data_loss("{}: tensor '{}' does not match its checksum", entry.file, name);
    }
    state.tensors.push_back(*read);
  }
  return state;
}

Json layer_entry_to_json(const LayerEntry& entry) {
  Json tensors = Json::array();
  for (const TensorEntry& tensor : entry.tensors) {
    tensors.push_back({{"name", tensor.name},
                       {"role", std::string(tensor_role_name(tensor.role))},
                       {"shape", tensor.shape},
                       {"xxh3", tensor.xxh3}});
  }
  return {{"layer", entry.layer},
          {"file", entry.file},
          {"bytes", entry.bytes},
          {"xxh3", entry.xxh3},
          {"tensors", std::move(tensors)}};
}

Result<LayerEntry> layer_entry_from_json(const Json& json) {
  LayerEntry entry;
  const auto decoded = decode_json("layer table", [&] {
    entry.layer = whole_number<int>(json.at("layer"));
    entry.file = json.at("file").get<std::string>();
    entry.bytes = whole_number<int64_t>(json.at("bytes"));
    entry.xxh3 = json.at("xxh3").get<std::string>();
    for (const Json& item : json.at("tensors")) {
      TensorEntry tensor;
      tensor.name = item.at("name").get<std::string>();
      const Result<TensorRole> role = parse_role(item.at("role").get<std::string>());
      if (!role.ok()) throw std::runtime_error(role.status().message());
      tensor.role = *role;
      tensor.shape = whole_numbers<int64_t>(item.at("shape"));
      tensor.xxh3 = item.at("xxh3").get<std::string>();
      entry.tensors.push_back(std::move(tensor));
    }
    return true;
  });
  if (!decoded.ok()) return decoded.status();
  if (entry.file.empty() || entry.file.find('/') != std::string::npos) {
    return invalid_argument("layer table: '{}' is no file name of this checkpoint", entry.file);
  }
  return entry;
}

}  // namespace flextrain::trainer
