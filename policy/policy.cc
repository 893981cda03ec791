// SPDX-License-Identifier: MIT
#include "policy/policy.h"

#include <set>

#include "base/text.h"
#include "policy/growth.h"
#include "policy/node_index.h"
#include "policy/probes.h"
#include "policy/reclaim.h"

namespace flextrain::policy {

std::string_view decision_kind_name(DecisionKind kind) {
  switch (kind) {
    case DecisionKind::kGrow:
      return "grow";
    case DecisionKind::kRefuseGrow:
      return "refuse";
    case DecisionKind::kShrink:
      return "shrink";
    case DecisionKind::kAbortReclaim:
      return "abort";
  }
  return "unknown";
}

Result<Parameters> parse_preset(std::string_view text) {
  Parameters parameters;
  const std::string name = to_lower(trim(text));
  if (name == "recommended") return parameters;
  if (name != "flextrain-paper")
    return invalid_argument("'{}' is no policy; one of recommended, flextrain-paper", text);
  parameters.gate = Gate::kPrinted;
  parameters.forecast = ForecastKind::kTrailing;
  parameters.arrival_min_gpus = 32;
  parameters.remaining_time_guard = false;
  parameters.victims = VictimRule::kMostExpanded;
  parameters.spare_ending_seconds = 0;
  return parameters;
}

std::vector<Decision> decide(const Snapshot& snapshot, const Parameters& parameters) {
  return decide_probed(snapshot, parameters, {});
}

std::vector<Decision> decide_probed(const Snapshot& snapshot, const Parameters& parameters,
                                    const Probes& probes) {
  const NodeIndex nodes(snapshot, parameters);
  ReclaimOutcome reclaimed = reclaim(snapshot, parameters, nodes, probes);
  std::vector<Decision> decisions = std::move(reclaimed.decisions);
  std::set<uint32_t> busy;
  for (const Decision& decision : decisions)
    if (decision.kind == DecisionKind::kShrink) busy.insert(decision.job_id);
  const std::vector<Decision> growths =
      grow(snapshot, parameters, nodes, busy, reclaimed.taken, probes);
  decisions.insert(decisions.end(), growths.begin(), growths.end());
  return decisions;
}

}  // namespace flextrain::policy
