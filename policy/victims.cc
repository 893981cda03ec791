// SPDX-License-Identifier: MIT
#include "policy/victims.h"

#include <algorithm>
#include <numeric>

#include "base/text.h"

namespace flextrain::policy {

std::string_view victim_rule_name(VictimRule rule) {
  return rule == VictimRule::kMostExpanded ? "most-expanded" : "smallest-sufficient";
}

Result<VictimRule> parse_victim_rule(std::string_view text) {
  for (const VictimRule rule : {VictimRule::kMostExpanded, VictimRule::kSmallestSufficient})
    if (to_lower(trim(text)) == victim_rule_name(rule)) return rule;
  return invalid_argument("'{}' is no victim rule; one of most-expanded, smallest-sufficient",
                          text);
}

bool is_spared(const Parameters& parameters, std::optional<double> remaining, bool saving) {
  if (parameters.spare_ending_seconds <= 0) return false;
  return saving ||
         (remaining && *remaining <= static_cast<double>(parameters.spare_ending_seconds));
}

std::vector<size_t> victim_order(VictimRule rule, std::vector<VictimFacts>& victims, int need) {
  int others = 0;
  for (const VictimFacts& victim : victims) others += victim.spared ? 0 : victim.expanded;
  if (others < need)
    for (VictimFacts& victim : victims) victim.spared = false;
  std::vector<size_t> order(victims.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t left, size_t right) {
    const VictimFacts &a = victims[left], &b = victims[right];
    if (a.spared != b.spared) return b.spared;
    const bool sufficient = rule == VictimRule::kSmallestSufficient;
    const bool a_covers = sufficient && a.expanded >= need;
    const bool b_covers = sufficient && b.expanded >= need;
    if (a_covers != b_covers) return a_covers;
    if (a.expanded != b.expanded)
      return a_covers ? a.expanded < b.expanded : a.expanded > b.expanded;
    return a.id < b.id;
  });
  return order;
}

}  // namespace flextrain::policy
