// SPDX-License-Identifier: MIT
#include "planner/predict.h"

#include <algorithm>
#include <cmath>

#include "planner/limits.h"
#include "planner/schedule.h"

namespace flextrain::planner {

double model_step_seconds(int layers, int pipeline_parallel, int micro_batches, double forward,
                          double backward) {
  const double p = pipeline_parallel;
  const double m = micro_batches;
  const double v = std::ceil(static_cast<double>(layers) / p);
  return (m * v + (p - 1) + (v - 1) * std::max(0.0, p - m)) * (forward + backward);
}

namespace {

// Bounds that keep every sum below from overflowing: a time, and the bytes of all layers together
// (static, and saved by one micro-batch).
constexpr double kMaxSeconds = 1e9;
constexpr int64_t kMaxStaticBytes = int64_t{1} << 56;
constexpr int64_t kMaxActivationBytes = int64_t{1} << 40;

bool is_amount(double seconds) { return seconds >= 0 && seconds <= kMaxSeconds; }

}  // namespace

Status check_profile(const StepProfile& profile, int num_transformer_layers) {
  if (profile.layers.size() != static_cast<size_t>(num_transformer_layers) + 2) {
    return invalid_argument(
        "profile: {} layers, {} needed (embedding, {} transformer layers, head)",
        profile.layers.size(), num_transformer_layers + 2, num_transformer_layers);
  }
  double work = 0;
  int64_t static_bytes = 0, activation_bytes = 0;
  for (size_t layer = 0; layer < profile.layers.size(); ++layer) {
    const LayerProfile& times = profile.layers[layer];
    if (!is_amount(times.forward) || !is_amount(times.backward)) {
      return invalid_argument("profile: layer {} has a time outside 0 ... {:g} s", layer,
                              kMaxSeconds);
    }
    if (times.static_bytes < 0 || times.activation_bytes < 0 ||
        times.static_bytes > kMaxStaticBytes - static_bytes ||
        times.activation_bytes > kMaxActivationBytes - activation_bytes) {
      return invalid_argument("profile: layer {} has a negative or impossibly large size", layer);
    }
    static_bytes += times.static_bytes;
    activation_bytes += times.activation_bytes;
    work += times.forward + times.backward;
  }
  if (!(work > 0)) return invalid_argument("profile: all layers took 0 s; nothing was measured");
  if (!is_amount(profile.transfer_seconds) || !is_amount(profile.reduce_seconds) ||
      !is_amount(profile.optimizer_seconds) || !is_amount(profile.step_seconds)) {
    return invalid_argument("profile: a time of the step is outside 0 ... {:g} s", kMaxSeconds);
  }
  if (profile.pipeline_parallel < 1 || profile.data_parallel < 1 || profile.virtual_stages < 1 ||
      int64_t{profile.pipeline_parallel} * profile.data_parallel > kMaxRanks ||
      profile.virtual_stages > kMaxChunks) {
    return invalid_argument("profile: measured with PP {} x DP {} x {} virtual stages",
                            profile.pipeline_parallel, profile.data_parallel,
                            profile.virtual_stages);
  }
  return {};
}

namespace {

int64_t stage_static_bytes(const StepProfile& profile, const Stage& stage) {
  int64_t bytes = 0;
  for (const auto& chunk : stage.chunks) {
    for (const LayerId layer : chunk) {
      if (layer != kNoOp) bytes += profile.layers[layer].static_bytes;
    }
  }
  return bytes / static_cast<int64_t>(stage.ranks.size());
}

// A ring all-reduce moves 2(d−1)/d of the data over each link (Patarasuk and Yuan, 2009).
double ring_volume(int data_parallel) { return 2.0 * (data_parallel - 1) / data_parallel; }

// Gradient reduction of a stage whose static memory is `share` of the measured fullest one's.
// Measured at DP 1 there is no reduction to scale: a ring is taken to cost an optimiser pass per
// unit of volume (both stream the same gradients through memory), to be replaced by a measurement
// as soon as there is one.
double reduce_seconds(const StepProfile& profile, int measured_data_parallel, int data_parallel,
                      double share) {
  if (measured_data_parallel > 1) {
    return profile.reduce_seconds * share * ring_volume(data_parallel) /
           ring_volume(measured_data_parallel);
  }
  return (profile.reduce_seconds + profile.optimizer_seconds * ring_volume(data_parallel)) * share;
}

struct ChunkCosts {
  ActionCosts times;
  std::vector<std::vector<int64_t>> activation;  // [stage][chunk], bytes kept per micro-batch
};

ChunkCosts chunk_costs(const StepProfile& profile, const Plan& plan, const Pipeline& pipeline) {
  ChunkCosts costs;
  costs.times.transfer = profile.transfer_seconds;
  for (const Stage& stage : pipeline.stages) {
    auto& forward = costs.times.forward_of.emplace_back();
    auto& backward = costs.times.backward_of.emplace_back();
    auto& activation = costs.activation.emplace_back();
    const double share = 1.0 / static_cast<double>(stage.ranks.size());
    for (const auto& chunk : stage.chunks) {
      forward.push_back(0);
      backward.push_back(0);
      activation.push_back(0);
      for (const LayerId layer : chunk) {
        if (layer == kNoOp) continue;
        const LayerProfile& measured = profile.layers[layer];
        forward.back() += measured.forward * share;
        backward.back() += measured.backward * share;
        if (plan.recompute[layer] != Recompute::kNone) {
          backward.back() += measured.forward * share;
        } else {
          activation.back() += measured.activation_bytes;
        }
      }
    }
  }
  return costs;
}

// Largest running sum of the activation deltas over a stage's executed list.
int64_t peak_activation(const StageActions& actions, const std::vector<int64_t>& bytes_of_chunk) {
  int64_t now = 0, peak = 0;
  for (const Action& action : actions) {
    if (action.kind == ActionKind::kForward) now += bytes_of_chunk[action.chunk];
    peak = std::max(peak, now);
    if (action.kind == ActionKind::kBackward) now -= bytes_of_chunk[action.chunk];
  }
  return peak;
}

bool same_pipeline(const Pipeline& a, const Pipeline& b) {
  return a.micro_batches == b.micro_batches &&
         std::equal(a.stages.begin(), a.stages.end(), b.stages.begin(), b.stages.end(),
                    [](const Stage& x, const Stage& y) {
                      return x.chunks == y.chunks && x.ranks.size() == y.ranks.size();
                    });
}

}  // namespace

MeasuredLayout measured_layout(const StepProfile& profile, const Plan& plan) {
  MeasuredLayout layout;
  layout.data_parallel = static_cast<int>(plan.pipelines.size());
  for (const Pipeline& pipeline : plan.pipelines) {
    for (const Stage& stage : pipeline.stages) {
      layout.fullest_static_bytes =
          std::max(layout.fullest_static_bytes, stage_static_bytes(profile, stage));
    }
  }
  return layout;
}

Result<Prediction> predict(const StepProfile& profile, const MeasuredLayout& measured,
                           const Plan& plan) {
  RETURN_IF_ERROR(check_profile(profile, plan.num_transformer_layers));
  const int data_parallel = static_cast<int>(plan.pipelines.size());
  Prediction prediction;
  double pipelines_end = 0, optimizer = 0;
  for (size_t index = 0; index < plan.pipelines.size(); ++index) {
    const Pipeline& pipeline = plan.pipelines[index];
    // Regular Plans repeat one pipeline; the same one ends at the same time.
    if (index > 0 && plan.schedule != "explicit" &&
        same_pipeline(pipeline, plan.pipelines[index - 1])) {
      continue;
    }
    ASSIGN_OR_RETURN(const Schedule schedule, schedule_of(plan, static_cast<int>(index)));
    const ChunkCosts costs = chunk_costs(profile, plan, pipeline);
    ASSIGN_OR_RETURN(const ScheduleReport report,
                     check_schedule(schedule, static_cast<int>(pipeline.stages[0].chunks.size()),
                                    pipeline.micro_batches, costs.times));
    for (size_t s = 0; s < pipeline.stages.size(); ++s) {
      const int64_t bytes = stage_static_bytes(profile, pipeline.stages[s]);
      const double share =
          measured.fullest_static_bytes > 0
              ? static_cast<double>(bytes) / static_cast<double>(measured.fullest_static_bytes)
              : 1.0;
      const double end = report.timeline[s].empty() ? 0 : report.timeline[s].back().end;
      pipelines_end = std::max(pipelines_end, end + reduce_seconds(profile, measured.data_parallel,
                                                                   data_parallel, share));
      optimizer = std::max(optimizer, profile.optimizer_seconds * share);
      const int64_t dynamic = peak_activation(schedule[s], costs.activation[s]);
      prediction.peak_memory_bytes = std::max(prediction.peak_memory_bytes, bytes + dynamic);
    }
  }
  // The gradient norm needs every stage's reduced gradients before the first optimiser update.
  prediction.step_seconds = pipelines_end + optimizer;
  return prediction;
}

}  // namespace flextrain::planner
