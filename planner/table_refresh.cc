// SPDX-License-Identifier: MIT
#include "planner/table_refresh.h"

#include <algorithm>
#include <cmath>

#include "planner/predict.h"

namespace flextrain::planner {
namespace {

// Steps between two profiles: enough for a busy moment to pass, doubled each time in vain.
constexpr int64_t kFirstPause = 50;
constexpr int kMostDoublings = 8;

const ScaleEntry* measured_entry(const ScaleTable& table) {
  for (const ScaleEntry& entry : table.entries) {
    if (entry.shape.gpus == table.measured_gpus) return &entry;
  }
  return nullptr;
}

bool contradictory(const ScaleTable& table) {
  bool contradicted = false;
  for (const ScaleEntry& entry : table.entries) {
    if (entry.shape.gpus <= table.measured_gpus) continue;
    if (entry.kept) return false;
    contradicted = contradicted || entry.drop_rule.starts_with("rule 1") ||
                   entry.drop_rule.starts_with("rule 2");
  }
  return contradicted;
}

}  // namespace

Result<RefreshedTable> refresh_scale_table(ScaleTable table, const std::vector<MeasuredStep>& steps,
                                           const ScaleRequest& request, double tolerance) {
  if (!(tolerance >= 0)) return invalid_argument("scale table: tolerance {} below 0", tolerance);
  RefreshedTable result;
  for (const MeasuredStep& step : steps) {
    if (!std::isfinite(step.step_seconds) || step.step_seconds <= 0) {
      return invalid_argument("scale table: a measured step of {} s at {} GPUs, must be above 0",
                              step.step_seconds, step.gpus);
    }
    const auto entry = std::find_if(table.entries.begin(), table.entries.end(),
                                    [&](const ScaleEntry& e) { return e.shape.gpus == step.gpus; });
    if (entry == table.entries.end()) continue;
    const double known = entry->step_seconds;
    if (std::abs(step.step_seconds - known) > tolerance * known) {
      result.stale.push_back({step.gpus, known, step.step_seconds});
    }
    const double tokens = entry->tokens_per_second * known;
    entry->step_seconds = step.step_seconds;
    entry->tokens_per_second = tokens / step.step_seconds;
    entry->source = PredictionSource::kMeasured;
  }
  std::sort(result.stale.begin(), result.stale.end(),
            [](const StaleEntry& a, const StaleEntry& b) { return a.gpus < b.gpus; });
  for (const StaleEntry& entry : result.stale) {
    result.text += fmt::format("{}{} GPUs: predicted {:.4g} s, measured {:.4g} s",
                               result.text.empty() ? "stale: " : "; ", entry.gpus,
                               entry.predicted_seconds, entry.measured_seconds);
  }
  filter_entries(table.entries, table.measured_gpus, request);
  table.note = table_note(table.entries, table.measured_gpus);
  result.table = std::move(table);
  return result;
}

RemeasureDecision when_to_remeasure(const ScaleTable& table, const RemeasureState& state,
                                    double tolerance) {
  const int doublings = std::clamp(state.profiles_taken - 1, 0, kMostDoublings);
  const int64_t pause = kFirstPause << doublings;
  RemeasureDecision decision;
  const ScaleEntry* measured = measured_entry(table);
  if (measured != nullptr && state.step_seconds_now > 0 && measured->step_seconds > 0 &&
      std::abs(state.step_seconds_now - measured->step_seconds) >
          tolerance * measured->step_seconds) {
    decision.drifted = true;
    decision.reason =
        fmt::format("the entry of {} GPUs is stale: steps take {:.4g} s, the profile has {:.4g} s",
                    table.measured_gpus, state.step_seconds_now, measured->step_seconds);
  } else if (contradictory(table)) {
    decision.reason = table.note.empty() ? "no larger size is kept" : table.note;
  } else {
    return decision;
  }
  decision.now = state.steps_since_profile >= pause;
  decision.in_steps = decision.now ? 0 : pause - state.steps_since_profile;
  return decision;
}

}  // namespace flextrain::planner
