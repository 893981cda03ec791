// SPDX-License-Identifier: MIT
#include "trainer/engine/step_profiler.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <limits>

namespace flextrain::trainer {
namespace {

// Sleeps rather than spins: another rank may need the core.
void sleep_seconds(double seconds) {
  timespec wait{static_cast<time_t>(seconds), 0};
  wait.tv_nsec = static_cast<long>((seconds - static_cast<double>(wait.tv_sec)) * 1e9);
  while (nanosleep(&wait, &wait) != 0) {
  }
}

}  // namespace

double wall_seconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

StepProfiler::StepProfiler(int layers, size_t events, int slow_layer, double slow_factor,
                           double layer_seconds, bool split_backward)
    : slow_layer_(slow_layer),
      slow_factor_(slow_factor),
      layer_seconds_(layer_seconds),
      split_backward_(split_backward) {
  step_.layers.resize(static_cast<size_t>(layers));
  total_.layers.resize(static_cast<size_t>(layers));
  trace_.reserve(events);
}

void StepProfiler::begin_step(bool record) {
  record_ = record;
  step_begin_ = wall_seconds();
  restart_step();
}

void StepProfiler::restart_step() {
  if (!record_) return;
  trace_.clear();
  std::fill(step_.layers.begin(), step_.layers.end(), LayerTimes{});
  step_.transfer = step_.reduce = step_.optimizer = 0;
}

void StepProfiler::end_step() {
  if (!record_) return;
  step_.step = now();
  add_step();
}

void StepProfiler::add_step() {
  for (size_t i = 0; i < total_.layers.size(); ++i) {
    for (size_t part = 0; part < kParts; ++part) {
      total_.layers[i].seconds[part] += step_.layers[i].seconds[part];
      total_.layers[i].count[part] += step_.layers[i].count[part];
    }
  }
  if (step_.transfer > 0)
    total_.transfer =
        total_.transfer > 0 ? std::min(total_.transfer, step_.transfer) : step_.transfer;
  total_.reduce += step_.reduce;
  total_.optimizer += step_.optimizer;
  total_.step += step_.step;
  ++total_.steps;
}

void StepProfiler::end_layer(planner::LayerId layer, Part part, double seconds) {
  const double share = part == Part::kBackward && !split_backward_ ? 2 : 1;
  double spent = std::max(seconds, layer_seconds_ * share);
  if (layer == slow_layer_) spent *= slow_factor_;
  if (spent > seconds) sleep_seconds(spent - seconds);
  if (!record_) return;
  LayerTimes& times = step_.layers[static_cast<size_t>(layer)];
  times.seconds[static_cast<size_t>(part)] += spent;
  times.count[static_cast<size_t>(part)] += 1;
}

void StepProfiler::end_action(const planner::Action& action, int chunk_layers, double begun) {
  if (!record_) return;
  const double end = now();
  if (trace_.size() < trace_.capacity()) trace_.push_back({action, chunk_layers, begun, end});
  const double spent = end - begun;
  switch (action.kind) {
    case planner::ActionKind::kSendForward:
    case planner::ActionKind::kRecvForward:
    case planner::ActionKind::kSendBackward:
    case planner::ActionKind::kRecvBackward:
      step_.transfer = step_.transfer > 0 ? std::min(step_.transfer, spent) : spent;
      break;
    case planner::ActionKind::kReduce:
      step_.reduce += spent;
      break;
    case planner::ActionKind::kStep:
      step_.optimizer += spent;
      break;
    default:
      break;
  }
}

Result<planner::StepProfile> StepProfiler::gather(planner::StepProfile mine,
                                                  Communicator& world) const {
  if (total_.steps == 0)
    return failed_precondition("no step was profiled yet; call train_step with profile = true");
  const size_t layers = total_.layers.size();
  // Sums over ranks: times and counts of the layers each worked on, bytes from those that save.
  constexpr size_t kPerLayer = 2 * kParts + 2;
  std::vector<double> sums;
  sums.reserve(layers * kPerLayer);
  for (size_t i = 0; i < layers; ++i) {
    const LayerTimes& t = total_.layers[i];
    sums.insert(sums.end(), t.seconds.begin(), t.seconds.end());
    sums.insert(sums.end(), t.count.begin(), t.count.end());
    sums.push_back(static_cast<double>(mine.layers[i].static_bytes));
    sums.push_back(static_cast<double>(mine.layers[i].activation_bytes));
  }
  RETURN_IF_ERROR(world.all_reduce(std::span<double>(sums), ReduceOp::kSum));
  for (size_t i = 0; i < layers; ++i) {
    const double* s = sums.data() + kPerLayer * i;
    const auto mean = [s](Part part) {
      const auto at = static_cast<size_t>(part);
      return s[kParts + at] > 0 ? s[at] / s[kParts + at] : 0.0;
    };
    planner::LayerProfile& layer = mine.layers[i];
    layer.forward = mean(Part::kForward);
    layer.backward = mean(Part::kBackward) + mean(Part::kWgrad);
    layer.static_bytes = static_cast<int64_t>(s[2 * kParts]);
    layer.activation_bytes = static_cast<int64_t>(s[2 * kParts + 1]);
  }
  // Waiting hides in transfers and reductions: the rank that waited least shows the operation. A
  // minimum is the maximum of the negatives.
  const double steps = total_.steps, none = -std::numeric_limits<double>::max();
  double extremes[] = {total_.step / steps, total_.optimizer / steps, -total_.reduce / steps,
                       total_.transfer > 0 ? -total_.transfer : none};
  RETURN_IF_ERROR(world.all_reduce(std::span<double>(extremes), ReduceOp::kMax));
  mine.step_seconds = extremes[0];
  mine.optimizer_seconds = extremes[1];
  mine.reduce_seconds = -extremes[2];
  mine.transfer_seconds = extremes[3] == none ? 0 : -extremes[3];
  mine.steps = total_.steps;
  return mine;
}

}  // namespace flextrain::trainer
