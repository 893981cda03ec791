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

namespace {

// What every schedule of some costs must do, from the precedences and the memory caps of one stage.
class StageBounds {
 public:
  explicit StageBounds(const PipelineCosts& costs) : costs_(costs), shape_(costs.shape) {
    // Way in: from the first Forward on to a chunk's first one. Way out: after a chunk's Backward
    // those of the earlier ones follow (a Recompute may be done before). Way round: from the end of
    // a chunk's Forward to the begin of its Backward.
    in_.assign(shape_.chunks(), 0);
    out_ = round_ = in_;
    for (int at = 1; at < shape_.chunks(); ++at) {
      in_[at] = in_[at - 1] + chunk(at - 1).forward + hop(at - 1);
      out_[at] = out_[at - 1] + chunk(at - 1).backward + hop(at - 1);
    }
    for (int at = shape_.last_position() - 1; at >= 0; --at) {
      round_[at] = round_[at + 1] + chunk(at + 1).forward + chunk(at + 1).backward + 2 * hop(at);
    }
  }

  double of_stage(int stage) const {
    double all = 0, before_wgrad = 0;
    double way_in = kNever, way_out = kNever, first_backward = kNever;
    for (int c = 0; c < shape_.virtual_stages; ++c) {
      const ChunkCosts& own = costs_.chunks[stage][c];
      const int at = shape_.position(stage, c);
      before_wgrad += own.forward + own.backward + own.recompute;
      all += own.forward + own.backward + own.recompute + own.wgrad;
      way_in = std::min(way_in, in_[at]);
      way_out = std::min(way_out, out_[at]);
      first_backward = std::min(first_backward, in_[at] + own.forward + round_[at]);
    }
    const double m = shape_.micro_batches;
    // Until the first Backward a stage has only Forwards (and Recomputes) to do, as many as fit.
    const double early = std::min(early_work(stage), first_backward - way_in);
    double bound = std::max({way_in + all * m, way_in + before_wgrad * m + way_out,
                             first_backward - early + all * m,
                             first_backward - early + before_wgrad * m + way_out});
    if (costs_.memory_cap.empty()) return bound;
    // Memory times time: every micro-batch holds its activation for the way round at least.
    double area = 0;
    for (int c = 0; c < shape_.virtual_stages; ++c) {
      const ChunkCosts& own = costs_.chunks[stage][c];
      const int at = shape_.position(stage, c);
      const double stay = own.forward + round_[at] + own.backward;
      area += own.activation * stay;
      // As many at once as fit: the Forward of the next one waits for a Backward.
      const double fit = std::floor(costs_.memory_cap[stage] / own.activation + kSlack);
      if (own.activation <= 0 || !(fit >= 1) || fit >= m) continue;
      const double turns = std::floor((m - 1) / fit), rest = m - turns * fit;
      bound = std::max(bound, in_[at] + turns * stay + out_[at] +
                                  std::max(stay, rest * (own.forward + own.backward)));
    }
    return std::max(bound, way_in + area * m / (costs_.memory_cap[stage] * (1 + kSlack)) + way_out);
  }

  double one_micro_batch() const { return chunk(0).forward + round_[0] + chunk(0).backward; }

 private:
  static constexpr double kNever = std::numeric_limits<double>::infinity();
  static constexpr double kSlack = 1e-6;  // caps are kept up to rounding

  const ChunkCosts& chunk(int position) const {
    return costs_.chunks[shape_.stage_at(position)][shape_.chunk_at(position)];
  }
  double hop(int position) const {  // between a position and the next
    return shape_.stage_at(position) == shape_.stage_at(position + 1) ? 0.0
                                                                      : chunk(position).transfer;
  }

  double early_work(int stage) const {
    double all = 0, most_per_byte = 0;
    for (const ChunkCosts& own : costs_.chunks[stage]) {
      const double work = own.forward + own.recompute;
      all += work * shape_.micro_batches;
      most_per_byte = std::max(most_per_byte, own.activation > 0 ? work / own.activation : kNever);
    }
    if (costs_.memory_cap.empty()) return all;
    return std::min(all, costs_.memory_cap[stage] * (1 + kSlack) * most_per_byte);
  }

  const PipelineCosts& costs_;
  const ScheduleShape& shape_;
  std::vector<double> in_, out_, round_;  // per position
};

}  // namespace

double makespan_lower_bound(const PipelineCosts& costs) {
  const StageBounds bounds(costs);
  double bound = bounds.one_micro_batch();
  for (int stage = 0; stage < costs.shape.stages; ++stage) {
    bound = std::max(bound, bounds.of_stage(stage));
  }
  return bound;
}

}  // namespace flextrain::planner
