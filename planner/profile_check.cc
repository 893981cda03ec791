// SPDX-License-Identifier: MIT
// Whether a profile is one that can be reckoned with, and FlexTrain's closed formula.
#include <algorithm>
#include <cmath>

#include "planner/limits.h"
#include "planner/predict.h"

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

Status check_profile(const StepProfile& profile, int num_transformer_layers, int num_mtp_heads) {
  const int needed = num_layers(num_transformer_layers, num_mtp_heads);
  if (profile.layers.size() != static_cast<size_t>(needed)) {
    return invalid_argument(
        "profile: {} layers, {} needed (embedding, {} transformer layers, head{})",
        profile.layers.size(), needed, num_transformer_layers,
        num_mtp_heads > 0 ? fmt::format(", {} MTP heads", num_mtp_heads) : "");
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
    if (!(times.wgrad >= 0 && times.wgrad <= times.backward) ||
        !(times.selective_seconds >= 0 && times.selective_seconds <= times.forward) ||
        times.selective_bytes < 0 || times.selective_bytes > times.activation_bytes ||
        times.optimizer_bytes < 0 || times.gradient_bytes < 0 || times.working_bytes < 0 ||
        times.gradient_scratch_bytes < 0 || times.kept_bytes < 0 ||
        times.working_bytes > kMaxActivationBytes ||
        times.gradient_scratch_bytes > kMaxActivationBytes ||
        times.kept_bytes > kMaxActivationBytes ||
        times.optimizer_bytes > times.static_bytes - times.gradient_bytes) {
      return invalid_argument("profile: a part of layer {} is larger than the whole", layer);
    }
    if (times.needs_layer < kNoOp || times.needs_layer >= needed) {
      return invalid_argument("profile: layer {} works with layer {}, which there is not", layer,
                              times.needs_layer);
    }
    static_bytes += times.static_bytes;
    activation_bytes += times.activation_bytes;
    work += times.forward + times.backward;
  }
  if (!(work > 0)) return invalid_argument("profile: all layers took 0 s; nothing was measured");
  if (!is_amount(profile.transfer_seconds) || !is_amount(profile.reduce_seconds) ||
      !is_amount(profile.optimizer_seconds) || !is_amount(profile.step_seconds) ||
      !is_amount(profile.control_seconds) || !is_amount(profile.far_transfer_seconds)) {
    return invalid_argument("profile: a time of the step is outside 0 ... {:g} s", kMaxSeconds);
  }
  if (profile.pipeline_parallel < 1 || profile.data_parallel < 1 || profile.virtual_stages < 1 ||
      int64_t{profile.pipeline_parallel} * profile.data_parallel > kMaxRanks ||
      profile.virtual_stages > kMaxChunks) {
    return invalid_argument("profile: measured with PP {} x DP {} x {} virtual stages",
                            profile.pipeline_parallel, profile.data_parallel,
                            profile.virtual_stages);
  }
  if (profile.hop_bytes < 0 || profile.hop_bytes > kMaxActivationBytes ||
      profile.ranks_per_node < 0 || profile.ranks_per_node > kMaxRanks) {
    return invalid_argument("profile: hops of {} bytes, {} ranks per node", profile.hop_bytes,
                            profile.ranks_per_node);
  }
  for (const double slowness : profile.rank_slowness) {
    if (slowness >= 1e-3 && slowness <= 1e3) continue;
    return invalid_argument("profile: a rank that takes {} times the average", slowness);
  }
  for (const StartPhase& phase : profile.start_phases) {
    if (is_amount(phase.seconds)) continue;
    return invalid_argument("profile: start phase '{}' has a time outside 0 ... {:g} s", phase.name,
                            kMaxSeconds);
  }
  return {};
}

}  // namespace flextrain::planner
