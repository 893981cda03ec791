// SPDX-License-Identifier: MIT
// Costs of a pipeline's chunks: checks, conversion for the checker, the lower bound.
#include <algorithm>
#include <cmath>
#include <limits>

#include "planner/schedule_family.h"

namespace flextrain::planner {

PipelineCosts uniform_costs(const ScheduleShape& shape, const ChunkCosts& costs) {
  return {
      shape, std::vector(shape.stages, std::vector<ChunkCosts>(shape.virtual_stages, costs)), {}};
}

Status check_pipeline_costs(const PipelineCosts& costs) {
  const ScheduleShape& shape = costs.shape;
  RETURN_IF_ERROR(check_shape(shape));
  bool fits = costs.chunks.size() == static_cast<size_t>(shape.stages);
  for (const auto& row : costs.chunks) {
    fits = fits && row.size() == static_cast<size_t>(shape.virtual_stages);
  }
  if (!fits) {
    return invalid_argument("costs: the table must have {} stages of {} chunks", shape.stages,
                            shape.virtual_stages);
  }
  for (int stage = 0; stage < shape.stages; ++stage) {
    for (int chunk = 0; chunk < shape.virtual_stages; ++chunk) {
      const ChunkCosts& c = costs.chunks[stage][chunk];
      const struct {
        const char* name;
        double value;
        bool positive;
      } values[] = {{"forward time", c.forward, true},
                    {"backward time", c.backward, true},
                    {"weight gradient time", c.wgrad, false},
                    {"recomputation time", c.recompute, false},
                    {"transfer time", c.transfer, false},
                    {"activation memory", c.activation, false},
                    {"memory kept for the weight gradient", c.wgrad_kept, false},
                    {"recomputed memory", c.recomputed, false}};
      for (const auto& [name, value, positive] : values) {
        if (std::isfinite(value) && (positive ? value > 0 : value >= 0)) continue;
        return invalid_argument(
            "costs: the {} of stage {}, chunk {} is {}, must be a finite "
            "number {} 0",
            name, stage, chunk, value, positive ? ">" : ">=");
      }
    }
  }
  if (costs.memory_cap.empty()) return {};
  if (costs.memory_cap.size() != static_cast<size_t>(shape.stages)) {
    return invalid_argument("costs: {} memory caps for {} stages", costs.memory_cap.size(),
                            shape.stages);
  }
  for (int stage = 0; stage < shape.stages; ++stage) {
    if (costs.memory_cap[stage] > 0) continue;  // infinite = none
    return invalid_argument("costs: the memory cap of stage {} is {}, must be above 0", stage,
                            costs.memory_cap[stage]);
  }
  return {};
}

ActionCosts action_costs(const PipelineCosts& costs, bool split_backward) {
  ActionCosts result;
  for (const auto& row : costs.chunks) {
    for (PerChunk* table : {&result.forward_of, &result.backward_of, &result.wgrad_of,
                            &result.recompute_of, &result.transfer_of, &result.activation_of,
                            &result.wgrad_kept_of, &result.recomputed_of}) {
      table->emplace_back();
    }
    for (const ChunkCosts& chunk : row) {
      result.forward_of.back().push_back(chunk.forward);
      result.backward_of.back().push_back(split_backward ? chunk.backward
                                                         : chunk.backward + chunk.wgrad);
      result.wgrad_of.back().push_back(chunk.wgrad);
      result.recompute_of.back().push_back(chunk.recompute);
      result.transfer_of.back().push_back(chunk.transfer);
      result.activation_of.back().push_back(chunk.activation);
      result.wgrad_kept_of.back().push_back(chunk.wgrad_kept);
      result.recomputed_of.back().push_back(chunk.recomputed);
    }
  }
  return result;
}

double makespan_lower_bound(const PipelineCosts& costs) {
  const ScheduleShape& shape = costs.shape;
  const auto chunk = [&](int position) -> const ChunkCosts& {
    return costs.chunks[shape.stage_at(position)][shape.chunk_at(position)];
  };
  const auto hop = [&](int position) {  // between a position and the next
    return shape.stage_at(position) == shape.stage_at(position + 1) ? 0.0
                                                                    : chunk(position).transfer;
  };
  // Way in: from the first Forward on to the stage's first one. Way out: after the stage's last
  // Backward those of the earlier chunks follow (a Recompute may be done before).
  std::vector<double> in(shape.chunks(), 0), out(shape.chunks(), 0);
  for (int at = 1; at < shape.chunks(); ++at) {
    in[at] = in[at - 1] + chunk(at - 1).forward + hop(at - 1);
    out[at] = out[at - 1] + chunk(at - 1).backward + hop(at - 1);
  }
  double bound = 0;
  for (int stage = 0; stage < shape.stages; ++stage) {
    double all = 0, before_wgrad = 0;
    double way_in = std::numeric_limits<double>::infinity(), way_out = way_in;
    for (int c = 0; c < shape.virtual_stages; ++c) {
      const ChunkCosts& own = costs.chunks[stage][c];
      before_wgrad += own.forward + own.backward + own.recompute;
      all += own.forward + own.backward + own.recompute + own.wgrad;
      way_in = std::min(way_in, in[shape.position(stage, c)]);
      way_out = std::min(way_out, out[shape.position(stage, c)]);
    }
    bound = std::max({bound, way_in + all * shape.micro_batches,
                      way_in + before_wgrad * shape.micro_batches + way_out});
  }
  // One micro-batch through the whole pipeline and back.
  double path = 0;
  for (int at = 0; at < shape.chunks(); ++at) {
    path += chunk(at).forward + chunk(at).backward;
    if (at > 0) path += 2 * hop(at - 1);
  }
  return std::max(bound, path);
}

}  // namespace flextrain::planner
