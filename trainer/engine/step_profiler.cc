// SPDX-License-Identifier: MIT
#include "trainer/engine/step_profiler.h"

#include <algorithm>

namespace flextrain::trainer {

StepProfiler::StepProfiler(Backend& backend, int layers, size_t events, int slow_layer,
                           double slow_factor, double layer_seconds)
    : backend_(backend),
      slow_layer_(slow_layer),
      slow_factor_(slow_factor),
      layer_seconds_(layer_seconds) {
  step_.layers.resize(static_cast<size_t>(layers));
  empty_.layers.resize(static_cast<size_t>(layers));
  total_ = empty_;
  trace_.reserve(events);
  step_.messages.reserve(events);
}

void StepProfiler::begin_step(bool record, bool slowed) {
  record_ = record;
  slowed_ = slowed;
  step_begin_ = backend_.clock_seconds();
  restart_step();
}

void StepProfiler::restart_step() {
  if (!record_) return;
  trace_.clear();
  std::fill(step_.layers.begin(), step_.layers.end(), LayerTimes{});
  step_.messages.clear();
  step_.control = {};
  step_.reduce = step_.optimizer = 0;
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
  total_.messages.insert(total_.messages.end(), step_.messages.begin(), step_.messages.end());
  for (size_t i = 0; i < total_.control.size(); ++i) {
    total_.control[i] =
        total_.steps == 0 ? step_.control[i] : std::min(total_.control[i], step_.control[i]);
  }
  total_.reduce += step_.reduce;
  total_.optimizer += step_.optimizer;
  total_.step += step_.step;
  ++total_.steps;
}

void StepProfiler::end_layer(planner::LayerId layer, Part part, double seconds) {
  double spent = slowed_ ? std::max(seconds, layer_seconds_) : seconds;
  if (slowed_ && layer == slow_layer_) spent *= slow_factor_;
  if (spent > seconds) backend_.pause(spent - seconds);
  if (record_) step_.layers[static_cast<size_t>(layer)].add(part, spent);
}

void StepProfiler::note_selective(planner::LayerId layer, double seconds) {
  if (record_) step_.layers[static_cast<size_t>(layer)].add(Part::kSelective, seconds);
}

void StepProfiler::end_action(const planner::Action& action, int chunk_layers, double begun,
                              const ActionMemory& memory) {
  if (!record_) return;
  const double end = now();
  if (trace_.size() < trace_.capacity()) {
    trace_.push_back({action, chunk_layers, begun, end, memory.before, memory.after});
  }
  const double spent = end - begun;
  switch (action.kind) {
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

void StepProfiler::end_message(int from, int to, int tag, double begun) {
  if (record_) step_.messages.push_back({from, to, tag, now() - begun});
}

void StepProfiler::end_norms(double begun) {
  if (record_) step_.optimizer += now() - begun;
}

void StepProfiler::end_control(Control control, double begun) {
  if (record_) step_.control[static_cast<size_t>(control)] += now() - begun;
}

}  // namespace flextrain::trainer
