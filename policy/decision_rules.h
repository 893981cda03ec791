// SPDX-License-Identifier: MIT
// Every kind and rule that decide() may give a decision, where no hold of the caller's
// (ElasticJobView::hold_rule) is the rule. A closed set, for labels and legends; that it is
// complete is tested over random snapshots.
#pragma once

#include <string_view>

#include "policy/policy.h"

namespace flextrain::policy {

struct DecisionRule {
  DecisionKind kind;
  std::string_view name;
};

inline constexpr DecisionRule kDecisionRules[] = {
    {DecisionKind::kGrow, "gate"},
    {DecisionKind::kGrow, "best-entry"},
    {DecisionKind::kShrink, "reclaim"},
    {DecisionKind::kAbortReclaim, "not-enough"},
    {DecisionKind::kAbortReclaim, "switch-under-way"},
    {DecisionKind::kRefuseGrow, "not-steady"},
    {DecisionKind::kRefuseGrow, "at-max"},
    {DecisionKind::kRefuseGrow, "no-table"},
    {DecisionKind::kRefuseGrow, "quiet-hours"},
    {DecisionKind::kRefuseGrow, "queue-not-empty"},
    {DecisionKind::kRefuseGrow, "failure-pause"},
    {DecisionKind::kRefuseGrow, "cooldown"},
    {DecisionKind::kRefuseGrow, "scalings-per-hour"},
    {DecisionKind::kRefuseGrow, "no-idle"},
    {DecisionKind::kRefuseGrow, "user-cap"},
    {DecisionKind::kRefuseGrow, "account-cap"},
    {DecisionKind::kRefuseGrow, "idle-reserve"},
    {DecisionKind::kRefuseGrow, "no-entry"},
    {DecisionKind::kRefuseGrow, "guard"},
    {DecisionKind::kRefuseGrow, "gate"},
};

}  // namespace flextrain::policy
