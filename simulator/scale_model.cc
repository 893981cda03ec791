// SPDX-License-Identifier: MIT
#include "simulator/scale_model.h"

#include <algorithm>
#include <cmath>

namespace flextrain::simulator {
namespace {

struct ModelShape {
  int layers, depth, micro_batches;  // at the initial size
};
ModelShape shape_of(int gpus) {
  if (gpus <= 32) return {24, 4, 32};
  if (gpus <= 64) return {48, 8, 32};
  return {61, 16, 64};
}

double step_time(const ModelShape& shape, int depth) {
  const int v = (shape.layers + depth - 1) / depth;
  const int m = shape.micro_batches;
  return m * v + (depth - 1) + (v - 1) * std::max(0, depth - m);
}

}  // namespace

std::vector<policy::TableEntry> scale_table(ScaleMode mode, int gpus) {
  std::vector<policy::TableEntry> table{{gpus, 1.0}};
  if (mode == ScaleMode::kDataAndPipeline) {
    for (int factor = 2; factor <= 4; ++factor)
      table.push_back({factor * gpus, factor * std::pow(0.925, std::log2(factor))});
    return table;
  }
  const ModelShape shape = shape_of(gpus);
  for (int depth = shape.depth + 1; depth <= std::min(4 * shape.depth, shape.layers); ++depth) {
    if (gpus * depth % shape.depth != 0) continue;  // whole GPUs per stage
    const double speed = step_time(shape, shape.depth) / step_time(shape, depth);
    if (speed >= 1.05 * table.back().tokens_per_second)
      table.push_back({gpus * depth / shape.depth, speed});
  }
  return table;
}

}  // namespace flextrain::simulator
