// SPDX-License-Identifier: MIT
// One global layer as one safetensors file: u64 header length, JSON header padded to 8 bytes, raw
// little-endian data. A moment's tensor is called NAME + ".first_moment" or ".second_moment".
// Pure: bytes in, bytes out.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "trainer/engine/engine.h"

namespace flextrain::trainer {

// "layer-3.safetensors".
std::string layer_file_name(planner::LayerId layer);
std::string_view tensor_role_name(TensorRole role);  // "weight", "first_moment", "second_moment"

// What the manifest says about one tensor.
struct TensorEntry {
  std::string name;  // without role suffix
  TensorRole role = TensorRole::kWeight;
  std::vector<int64_t> shape;
  std::string xxh3;  // of the raw values
};

// What the manifest says about one layer.
struct LayerEntry {
  planner::LayerId layer = 0;
  std::string file;
  int64_t bytes = 0;
  std::string xxh3;  // of the whole file
  std::vector<TensorEntry> tensors;
};

struct EncodedLayer {
  std::string bytes;
  LayerEntry entry;
};
// Errors: kInvalidArgument when a tensor's values do not fill its shape, or a name appears twice.
Result<EncodedLayer> encode_layer(const LayerState& state);

// Checks size, file checksum and every tensor against `entry`, and returns the values. kDataLoss
// names the file and what is wrong with it.
Result<LayerState> decode_layer(std::string_view bytes, const LayerEntry& entry);

Json layer_entry_to_json(const LayerEntry& entry);
Result<LayerEntry> layer_entry_from_json(const Json& json);

}  // namespace flextrain::trainer
