// SPDX-License-Identifier: MIT
#include "policy/selection.h"

#include <algorithm>
#include <climits>
#include <numeric>

#include "policy/throughput.h"

namespace flextrain::policy {

std::optional<std::vector<size_t>> exact_subset(const std::vector<int>& sizes, int sum) {
  if (sum < 0) return std::nullopt;
  constexpr int kUnreachable = INT_MAX;
  const auto width = static_cast<size_t>(sum) + 1;
  // fewest[i][s]: the least number of the first i sizes that add up to s.
  std::vector<std::vector<int>> fewest(sizes.size() + 1, std::vector<int>(width, kUnreachable));
  fewest[0][0] = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    fewest[i + 1] = fewest[i];
    if (sizes[i] <= 0) continue;
    for (auto s = static_cast<size_t>(sizes[i]); s < width; ++s) {
      const int without = fewest[i][s - static_cast<size_t>(sizes[i])];
      if (without != kUnreachable) fewest[i + 1][s] = std::min(fewest[i + 1][s], without + 1);
    }
  }
  if (fewest[sizes.size()][width - 1] == kUnreachable) return std::nullopt;
  std::vector<size_t> chosen;
  size_t rest = width - 1;
  for (size_t i = sizes.size(); i > 0; --i) {
    if (fewest[i][rest] == fewest[i - 1][rest]) continue;  // possible without it
    chosen.push_back(i - 1);
    rest -= static_cast<size_t>(sizes[i - 1]);
  }
  std::reverse(chosen.begin(), chosen.end());
  return chosen;
}

std::optional<std::vector<NodeOffer>> choose_nodes(const std::vector<NodeOffer>& offers, int gpus) {
  // Largest first until one node covers the rest; that one is the smallest which does. No choice of
  // nodes can be smaller in number.
  std::vector<NodeOffer> free = offers;
  std::stable_sort(free.begin(), free.end(),
                   [](const NodeOffer& a, const NodeOffer& b) { return a.gpus > b.gpus; });
  std::vector<NodeOffer> take;
  int rest = gpus;
  size_t largest = 0;
  while (rest > 0) {
    if (largest == free.size() || free[largest].gpus <= 0) return std::nullopt;
    if (free[largest].gpus < rest) {
      rest -= free[largest].gpus;
      take.push_back(free[largest++]);
      continue;
    }
    size_t last = largest;
    for (size_t i = largest; i < free.size() && free[i].gpus >= rest; ++i)
      if (free[i].gpus < free[last].gpus) last = i;
    take.push_back({free[last].node, rest});
    const bool whole = free[last].gpus == rest;
    if (whole) return take;
    rest = 0;
  }
  std::vector<int> sizes;
  for (const NodeOffer& offer : free) sizes.push_back(std::min(offer.gpus, gpus + 1));
  const auto subset = exact_subset(sizes, gpus);
  if (!subset || subset->size() > take.size()) return take;
  take.clear();
  for (const size_t i : *subset) take.push_back(free[i]);
  return take;
}

std::vector<CompanionView> keep_best(const ElasticJobView& job,
                                     const std::vector<CompanionView>& companions) {
  std::vector<int> sizes;
  for (const CompanionView& companion : companions) sizes.push_back(companion.gpus);
  const int most = job.base_gpus + std::accumulate(sizes.begin(), sizes.end(), 0);
  double best = tokens_per_second(job.table, job.base_gpus);
  std::vector<CompanionView> kept;
  for (const TableEntry& entry : job.table) {  // ascending: fewer GPUs win a tie
    if (entry.gpus <= job.base_gpus || entry.gpus > most || entry.tokens_per_second <= best)
      continue;
    const auto subset = exact_subset(sizes, entry.gpus - job.base_gpus);
    if (!subset) continue;
    best = entry.tokens_per_second;
    kept.clear();
    for (const size_t i : *subset) kept.push_back(companions[i]);
  }
  return kept;
}

}  // namespace flextrain::policy
