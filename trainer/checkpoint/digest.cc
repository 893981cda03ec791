// SPDX-License-Identifier: MIT
#include "trainer/checkpoint/digest.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "trainer/checkpoint/hash.h"

namespace flextrain::trainer {

std::string state_digest(std::vector<LayerEntry> layers, const TrainingCursor& cursor) {
  std::sort(layers.begin(), layers.end(),
            [](const LayerEntry& a, const LayerEntry& b) { return a.layer < b.layer; });
  std::string text = "flextrain-digest 1\n";
  for (const LayerEntry& layer : layers) {
    for (const TensorEntry& tensor : layer.tensors) {
      text += fmt::format("{} {} {} [{}] {}\n", layer.layer, tensor.name,
                          tensor_role_name(tensor.role), fmt::join(tensor.shape, ","), tensor.xxh3);
    }
  }
  text += fmt::format("step {}\nconsumed {}\nscale {}\nseed {}\n", cursor.step,
                      cursor.consumed_samples, cursor.accumulation_scale, cursor.seed);
  return xxh3_hex(text);
}

}  // namespace flextrain::trainer
