// SPDX-License-Identifier: MIT
// FlexTrain's filter over the scale table.
#include <algorithm>
#include <cmath>

#include "planner/predict.h"

namespace flextrain::planner {
namespace {

// Changes below this share count as no change, so that rounding never looks like a direction.
constexpr double kNoChange = 1e-9;

int direction(double before, double after) {
  const double change = (after - before) / before;
  if (change > kNoChange) return 1;
  return change < -kNoChange ? -1 : 0;
}

// Why `entry` is dropped; "" when it is kept.
std::string drop_reason(const ScaleEntry& entry, const ScaleEntry& previous,
                        const ScaleEntry& last_kept, double best_kept,
                        const ScaleRequest& request) {
  const int model_direction = direction(previous.model_step_seconds, entry.model_step_seconds);
  const int profile_direction = direction(previous.step_seconds, entry.step_seconds);
  if (model_direction * profile_direction < 0) {
    return fmt::format(
        "rule 1: against {} GPUs the model goes from {:.6g} to {:.6g} s, the profile from {:.6g} "
        "to {:.6g} s: opposite directions",
        previous.shape.gpus, previous.model_step_seconds, entry.model_step_seconds,
        previous.step_seconds, entry.step_seconds);
  }
  const double model_speedup = last_kept.model_step_seconds / entry.model_step_seconds;
  const double profile_speedup = last_kept.step_seconds / entry.step_seconds;
  const double difference = std::abs(model_speedup - profile_speedup) / profile_speedup;
  if (difference > request.speedup_tolerance) {
    return fmt::format(
        "rule 2: over {} GPUs the model predicts a speed-up of {:.4g}, the profile {:.4g}; they "
        "differ by {:.1f} %, more than {:.1f} %",
        last_kept.shape.gpus, model_speedup, profile_speedup, 100 * difference,
        100 * request.speedup_tolerance);
  }
  const double gain = entry.tokens_per_second / best_kept - 1;
  if (gain < request.significant_gain) {
    return fmt::format(
        "rule 3: {:.4g} tokens/s are {:.1f} % over the {:.4g} of fewer GPUs, less than the {:.1f} "
        "% that count",
        entry.tokens_per_second, 100 * gain, best_kept, 100 * request.significant_gain);
  }
  return "";
}

}  // namespace

void filter_entries(std::vector<ScaleEntry>& entries, int measured_gpus,
                    const ScaleRequest& request) {
  const ScaleEntry *last_kept = nullptr, *previous = nullptr;
  double best_kept = 0;
  for (ScaleEntry& entry : entries) {
    entry.drop_rule.clear();
    // The job has run on what was measured, whatever limits and predictions say.
    const bool measured =
        entry.shape.gpus == measured_gpus || entry.source == PredictionSource::kMeasured;
    entry.fits = measured || request.memory_limit_bytes == 0 ||
                 entry.peak_memory_bytes <= request.memory_limit_bytes;
    if (!entry.fits) {
      entry.drop_rule =
          fmt::format("memory: the fullest rank needs at least {:.5g} MB, {:.5g} MB are the limit",
                      static_cast<double>(entry.peak_memory_bytes) / 1e6,
                      static_cast<double>(request.memory_limit_bytes) / 1e6);
    } else if (last_kept != nullptr && !measured) {
      // The smallest one has nothing to be compared with.
      entry.drop_rule = drop_reason(entry, *previous, *last_kept, best_kept, request);
    }
    entry.kept = entry.drop_rule.empty();
    if (entry.fits) previous = &entry;
    if (!entry.kept) continue;
    last_kept = &entry;
    best_kept = std::max(best_kept, entry.tokens_per_second);
  }
}

std::string table_note(const std::vector<ScaleEntry>& entries, int measured_gpus) {
  int larger = 0, unfit = 0;
  int dropped[4] = {};  // by rule, 1 … 3
  for (const ScaleEntry& entry : entries) {
    if (entry.shape.gpus <= measured_gpus) continue;
    if (entry.kept) return "";
    ++larger;
    if (!entry.fits) ++unfit;
    for (int rule = 1; rule <= 3; ++rule) {
      if (entry.drop_rule.starts_with(fmt::format("rule {}", rule))) ++dropped[rule];
    }
  }
  if (larger == 0) return "";
  return fmt::format(
      "none of the {} sizes above {} GPUs is kept ({}rule 1: {}, rule 2: {}, rule 3: {}){}", larger,
      measured_gpus, unfit > 0 ? fmt::format("memory: {}, ", unfit) : "", dropped[1], dropped[2],
      dropped[3],
      dropped[1] + dropped[2] > 0
          ? "; model and measurement contradict each other, as they do when the machine was busy "
            "while the profile was taken: measure again"
      : unfit == larger ? "; none fits into the memory of a rank"
                        : "; no larger size is worth its GPUs");
}

}  // namespace flextrain::planner
