// SPDX-License-Identifier: MIT
#include "planner/placement.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "planner/limits.h"
#include "planner/schedule.h"

namespace flextrain::planner {
namespace {

// Relative costs when nothing has been measured yet; a transformer layer is 1. The head's matrix
// work against a layer's is about V·d / 12·d²: 0.65 … 0.33 for Llama 7B … 70B (V 32000), so 0.5.
// The embedding is a table look-up bound by memory, small but not free.
constexpr double kDefaultEmbeddingCost = 0.1;
constexpr double kDefaultHeadCost = 0.5;
// An MTP block is a transformer layer and a projection of twice the width (2·d² of 12·d²); its
// embedding and cross-entropy cost what embedding and head do.
constexpr double kDefaultMtpBlockCost = 1.0 + 1.0 / 6.0;
constexpr double kDefaultMtpLossCost = kDefaultEmbeddingCost + kDefaultHeadCost;
// Costs below this share of the largest one count as this share, so that a layer measured as 0
// still has a place it prefers.
constexpr double kSmallestShare = 1e-6;
// Slack for comparing sums of doubles.
constexpr double kSlack = 1.0 + 1e-9;

// Units (layer ids) cut into chunks: chunk k holds units [cut[k], cut[k+1]). Unit 0 (embedding) is
// always in the first chunk and the last unit in the last; a chunk may be empty of real layers.
using Cuts = std::vector<int>;

class Partitioner {
 public:
  // `head` is the unit that takes no position of its own, as the embedding. Without `empty_chunks`
  // there must be as many units as chunks, and every chunk gets one.
  Partitioner(const std::vector<double>& costs, const ScheduleShape& shape, int head,
              bool empty_chunks)
      : units_(static_cast<int>(costs.size())),
        shape_(shape),
        stages_(shape.stages),
        chunks_(shape.chunks()),
        head_(head),
        least_(empty_chunks ? 0 : 1),
        prefix_(costs.size() + 1, 0.0) {
    std::partial_sum(costs.begin(), costs.end(), prefix_.begin() + 1);
    largest_ = *std::max_element(costs.begin(), costs.end());
  }

  Cuts solve() const {
    Cuts cuts = balance_chunks();
    if (chunks_ > stages_) refine_stages(cuts);
    return cuts;
  }

  // Positions that a chunk's layers take.
  int positions(const Cuts& cuts, int chunk) const {
    int count = cuts[chunk + 1] - cuts[chunk];
    if (cuts[chunk] == 0 && count > 0) --count;
    if (cuts[chunk] <= head_ && head_ < cuts[chunk + 1]) --count;
    return count;
  }

 private:
  double sum(int begin, int end) const { return prefix_[end] - prefix_[begin]; }

  // Whether chunks of at most `limit` suffice; greedy filling is optimal for contiguous pieces.
  bool feasible(double limit) const {
    // The head and the embedding may not share a chunk when there are two or more, and neither
    // adds a chunk by itself: the first piece begins with one, the last ends with the other.
    int pieces = 1;
    int begin = 0;
    for (int end = 1; end <= units_; ++end) {
      if (sum(begin, end) <= limit * kSlack) continue;
      begin = end - 1;
      ++pieces;
      if (sum(begin, end) > limit * kSlack || pieces > chunks_) return false;
    }
    return true;
  }

  // The smallest possible largest chunk. It is one of the O(L²) contiguous sums, and lies between
  // the average and the average plus the largest unit (what greedy filling reaches).
  double smallest_limit() const {
    const double average = prefix_[units_] / chunks_;
    const double low = std::max(average, largest_) / kSlack;
    const double high = (average + largest_) * kSlack;
    std::vector<double> candidates;
    for (int begin = 0; begin < units_; ++begin) {
      for (int end = begin + 1; end <= units_ && sum(begin, end) <= high; ++end) {
        if (sum(begin, end) >= low) candidates.push_back(sum(begin, end));
      }
    }
    std::sort(candidates.begin(), candidates.end());
    const auto first = std::partition_point(candidates.begin(), candidates.end(),
                                            [this](double limit) { return !feasible(limit); });
    return first == candidates.end() ? prefix_[units_] : *first;
  }

  // Among the partitions whose largest chunk is as small as possible, the one with the smallest sum
  // of squares: it spreads the rest evenly and leaves no chunk empty without need. Dynamic
  // programme over (chunk, end); the limit keeps the window of `begin` short. A tie goes to the
  // earlier begin, thus to longer late chunks: earlier stages hold more micro-batches in flight, so
  // they get fewer layers.
  Cuts balance_chunks() const {
    const double limit = smallest_limit() * kSlack;
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    const int width = units_ + 1;
    std::vector<double> best(static_cast<size_t>(chunks_ + 1) * width, kInfinity);
    std::vector<int> from(best.size(), -1);
    const auto at = [width](int chunk, int end) {
      return static_cast<size_t>(chunk) * width + end;
    };
    best[at(0, 0)] = 0;
    for (int chunk = 1; chunk <= chunks_; ++chunk) {
      const bool last = chunk == chunks_;
      // The first chunk holds the embedding, the last one the head.
      const int end_low = last ? units_ : 1;
      const int end_high = last ? units_ : units_ - 1;
      for (int end = end_low; end <= end_high; ++end) {
        const int begin_high = last || chunk == 1 ? end - 1 : end - least_;
        for (int begin = begin_high; begin >= 0 && sum(begin, end) <= limit; --begin) {
          const double before = best[at(chunk - 1, begin)];
          if (before == kInfinity) continue;
          const double value = before + sum(begin, end) * sum(begin, end);
          if (value <= best[at(chunk, end)] * kSlack) {
            best[at(chunk, end)] = value;
            from[at(chunk, end)] = begin;
          }
        }
      }
    }
    Cuts cuts(chunks_ + 1, units_);
    for (int chunk = chunks_; chunk > 0; --chunk) cuts[chunk - 1] = from[at(chunk, cuts[chunk])];
    return cuts;
  }

  struct Score {
    double largest_stage = 0, squares = 0;
    bool better_than(const Score& other) const {
      if (largest_stage * kSlack < other.largest_stage) return true;
      if (largest_stage > other.largest_stage * kSlack) return false;
      return squares * kSlack < other.squares;
    }
  };

  Score score(const Cuts& cuts, std::vector<double>& load) const {
    load.assign(stages_, 0.0);
    for (int chunk = 0; chunk < chunks_; ++chunk) {
      load[shape_.stage_at(chunk)] += sum(cuts[chunk], cuts[chunk + 1]);
    }
    Score result;
    for (const double stage : load) {
      result.largest_stage = std::max(result.largest_stage, stage);
      result.squares += stage * stage;
    }
    return result;
  }

  // With virtual stages a stage's load is the sum of its chunks, and the steady state is bound by
  // the most loaded stage. Steepest descent: move one unit from a chunk of the most loaded stage to
  // another chunk by shifting every cut between the two; stop when no such move helps.
  void refine_stages(Cuts& cuts) const {
    const int largest_chunk = longest(cuts);
    std::vector<double> load;
    Score current = score(cuts, load);
    for (int round = 0; round < units_; ++round) {
      const int worst = static_cast<int>(std::max_element(load.begin(), load.end()) - load.begin());
      Cuts best_cuts;
      Score best = current;
      for (int c = 0; c < shape_.virtual_stages; ++c) {
        const int source = shape_.position(worst, c);
        for (int target = 0; target < chunks_; ++target) {
          Cuts moved = cuts;
          if (!shift(moved, source, target) || longest(moved) > largest_chunk) continue;
          const Score value = score(moved, load);
          if (value.better_than(best)) {
            best = value;
            best_cuts = std::move(moved);
          }
        }
      }
      if (best_cuts.empty()) return;
      cuts = std::move(best_cuts);
      current = score(cuts, load);
    }
  }

  // One unit leaves `source` towards `target`. False when the embedding or the head would have to
  // leave its chunk.
  bool shift(Cuts& cuts, int source, int target) const {
    if (source == target) return false;
    for (int cut = source + 1; cut <= target; ++cut) --cuts[cut];
    for (int cut = target + 1; cut <= source; ++cut) ++cuts[cut];
    if (cuts[1] < 1 || cuts[chunks_ - 1] > units_ - 1) return false;
    for (int chunk = 0; chunk < chunks_; ++chunk) {
      if (cuts[chunk + 1] - cuts[chunk] < least_) return false;
    }
    return true;
  }

  // Most positions in one chunk.
  int longest(const Cuts& cuts) const {
    int result = 0;
    for (int chunk = 0; chunk < chunks_; ++chunk) result = std::max(result, positions(cuts, chunk));
    return result;
  }

  int units_;
  ScheduleShape shape_;
  int stages_, chunks_, head_;
  int least_;  // units in a chunk
  std::vector<double> prefix_;
  double largest_ = 0;
};

Result<std::vector<double>> usable_costs(const PlacementRequest& request) {
  const int layers = request.num_transformer_layers;
  const size_t units = static_cast<size_t>(num_layers(layers, request.num_mtp_heads));
  if (request.costs.empty()) {
    std::vector<double> unit(units, 1.0);
    unit[0] = kDefaultEmbeddingCost;
    unit[layers + 1] = kDefaultHeadCost;
    for (int head = 0; head < request.num_mtp_heads; ++head) {
      unit[layers + 2 + 2 * head] = kDefaultMtpBlockCost;
      unit[layers + 3 + 2 * head] = kDefaultMtpLossCost;
    }
    return unit;
  }
  if (request.costs.size() != units) {
    return invalid_argument(
        "placement: {} layer costs given, {} needed (embedding, {} transformer layers, head{})",
        request.costs.size(), units, layers,
        request.num_mtp_heads > 0
            ? fmt::format(", block and loss of {} MTP heads", request.num_mtp_heads)
            : "");
  }
  double largest = 0;
  for (size_t layer = 0; layer < units; ++layer) {
    if (!std::isfinite(request.costs[layer]) || request.costs[layer] < 0) {
      return invalid_argument("placement: cost {} of layer {} must be a finite number >= 0",
                              request.costs[layer], layer);
    }
    largest = std::max(largest, request.costs[layer]);
  }
  if (largest == 0) return invalid_argument("placement: all layer costs are 0");
  std::vector<double> result = request.costs;
  for (double& cost : result) cost = std::max(cost / largest, kSmallestShare);
  return result;
}

Status check_request(const PlacementRequest& request) {
  const int layers = request.num_transformer_layers, heads = request.num_mtp_heads;
  const int stages = request.pipeline_parallel;
  if (layers < 1 || layers > kMaxLayers || heads < 0 || heads > kMaxMtpHeads) {
    return invalid_argument(
        "placement: {} transformer layers and {} MTP heads, must be 1 ... {} and 0 ... {}", layers,
        heads, kMaxLayers, kMaxMtpHeads);
  }
  if (stages < 1 || (!request.empty_stages && stages > layers + heads)) {
    return invalid_argument(
        "placement: pipeline parallel {} must be between 1 and the {} transformer layers{}{}",
        stages, layers, heads > 0 ? " and MTP blocks" : "",
        stages > layers && !request.no_ops ? "; No-Ops are forbidden" : "");
  }
  if (request.virtual_stages < 1 || request.virtual_stages > kMaxChunks / stages) {
    return invalid_argument("placement: {} virtual stages on {} stages, must be 1 ... {}",
                            request.virtual_stages, stages, kMaxChunks / stages);
  }
  return {};
}

}  // namespace

Result<LayerPlacement> place_layers(const PlacementRequest& request) {
  RETURN_IF_ERROR(check_request(request));
  ASSIGN_OR_RETURN(const std::vector<double> usable, usable_costs(request));
  const ScheduleShape shape{request.pipeline_parallel, request.virtual_stages, 1, request.order};
  const LayerId head = request.num_transformer_layers + 1;
  const int units = static_cast<int>(usable.size());
  const int chunks = shape.chunks();
  if (!request.no_ops && chunks > units) {
    return invalid_argument("placement: {} chunks for {} layers, and No-Ops are forbidden", chunks,
                            units);
  }
  const Partitioner partitioner(usable, shape, head, request.no_ops);
  const Cuts cuts = partitioner.solve();
  int positions = request.no_ops ? 1 : 0;  // per chunk, the same everywhere
  for (int chunk = 0; request.no_ops && chunk < chunks; ++chunk) {
    positions = std::max(positions, partitioner.positions(cuts, chunk));
  }
  LayerPlacement placement(shape.stages, std::vector<std::vector<LayerId>>(shape.virtual_stages));
  for (int chunk = 0; chunk < chunks; ++chunk) {
    std::vector<LayerId>& ids = placement[shape.stage_at(chunk)][shape.chunk_at(chunk)];
    for (LayerId layer = cuts[chunk]; layer < cuts[chunk + 1]; ++layer) ids.push_back(layer);
    const int missing = positions - partitioner.positions(cuts, chunk);
    // No-Ops end their chunk, but nothing follows the last layer.
    const auto end = chunk == chunks - 1 ? ids.end() - 1 : ids.end();
    if (missing > 0) ids.insert(end, static_cast<size_t>(missing), kNoOp);
  }
  return placement;
}

Result<LayerPlacement> place_layers(int num_transformer_layers, int pipeline_parallel,
                                    int virtual_stages, const std::vector<double>& costs) {
  PlacementRequest request;
  request.num_transformer_layers = num_transformer_layers;
  request.pipeline_parallel = pipeline_parallel;
  request.virtual_stages = virtual_stages;
  request.costs = costs;
  return place_layers(request);
}

}  // namespace flextrain::planner
