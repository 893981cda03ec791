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

std::vector<size_t> victim_order(VictimRule rule, const std::vector<VictimFacts>& victims,
                                 int need) {
  std::vector<size_t> order(victims.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t left, size_t right) {
    const VictimFacts &a = victims[left], &b = victims[right];
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
