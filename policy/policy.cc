// SPDX-License-Identifier: MIT
#include "policy/policy.h"

#include <set>

#include "policy/growth.h"
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

std::vector<Decision> decide(const Snapshot& snapshot, const Parameters& parameters) {
  ReclaimOutcome reclaimed = reclaim(snapshot);
  std::vector<Decision> decisions = std::move(reclaimed.decisions);
  std::set<uint32_t> busy;
  for (const Decision& decision : decisions)
    if (decision.kind == DecisionKind::kShrink) busy.insert(decision.job_id);
  const std::vector<Decision> growths = grow(snapshot, parameters, busy, reclaimed.taken);
  decisions.insert(decisions.end(), growths.begin(), growths.end());
  return decisions;
}

}  // namespace flextrain::policy
