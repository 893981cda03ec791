// SPDX-License-Identifier: MIT
#include "policy/victims.h"

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace flextrain::policy {
namespace {

constexpr int kMostExpanded = (1 << 30) - 1;  // GPUs

}  // namespace

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
  // One number per victim: sorting those is several times as fast as asking for each pair.
  const bool sufficient = rule == VictimRule::kSmallestSufficient;
  std::vector<std::pair<uint64_t, size_t>> keys;
  keys.reserve(victims.size());
  for (size_t at = 0; at < victims.size(); ++at) {
    const VictimFacts& victim = victims[at];
    const bool covers = sufficient && victim.expanded >= need;
    const auto expanded = static_cast<uint32_t>(std::clamp(victim.expanded, 0, kMostExpanded));
    uint64_t key = victim.spared ? 2 : 0;  // the others first
    key += covers ? 0 : 1;                 // who covers it alone first, the smallest of them
    key = key << 30 | (covers ? expanded : kMostExpanded - expanded);
    keys.emplace_back(key << 32 | victim.id, at);
  }
  std::sort(keys.begin(), keys.end());
  std::vector<size_t> order;
  order.reserve(keys.size());
  for (const auto& [key, at] : keys) order.push_back(at);
  return order;
}

}  // namespace flextrain::policy
