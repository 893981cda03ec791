// SPDX-License-Identifier: MIT
#include "policy/selection.h"

#include <algorithm>
#include <numeric>

#include "policy/throughput.h"

namespace flextrain::policy {

namespace {

struct EqualSizes {  // items of one size, in order
  int size = 0;
  std::vector<size_t> items;
};

std::vector<EqualSizes> by_size(const std::vector<int>& sizes, int largest) {
  std::vector<EqualSizes> groups;
  std::vector<int> group_of(static_cast<size_t>(std::max(largest, 0)) + 1, -1);
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] <= 0 || sizes[i] > largest) continue;
    int& group = group_of[static_cast<size_t>(sizes[i])];
    if (group < 0) {
      group = static_cast<int>(groups.size());
      groups.push_back({sizes[i], {}});
    }
    groups[static_cast<size_t>(group)].items.push_back(i);
  }
  return groups;
}

}  // namespace

std::optional<std::vector<size_t>> exact_subset(const std::vector<int>& sizes, int sum,
                                                size_t most) {
  if (sum < 0) return std::nullopt;
  constexpr size_t kUnreachable = SIZE_MAX;
  const auto width = static_cast<size_t>(sum) + 1;
  const std::vector<EqualSizes> groups = by_size(sizes, sum);
  // fewest[i][s]: the least number of items of the first i groups that add up to s.
  std::vector<std::vector<size_t>> fewest(groups.size() + 1,
                                          std::vector<size_t>(width, kUnreachable));
  fewest[0][0] = 0;
  for (size_t i = 0; i < groups.size(); ++i) {
    const auto size = static_cast<size_t>(groups[i].size);
    const size_t available = std::min(groups[i].items.size(), most);
    for (size_t s = 0; s < width; ++s) {
      size_t& best = fewest[i + 1][s];
      for (size_t count = 0; count <= available && count * size <= s; ++count) {
        const size_t without = fewest[i][s - count * size];
        if (without < best && without + count < best && without + count <= most)
          best = without + count;
      }
    }
  }
  if (fewest[groups.size()][width - 1] == kUnreachable) return std::nullopt;
  std::vector<size_t> chosen;
  size_t rest = width - 1;
  for (size_t i = groups.size(); i > 0; --i) {
    const EqualSizes& group = groups[i - 1];
    for (size_t count = 0;; ++count) {  // as few of the later groups as possible
      const size_t before = rest - count * static_cast<size_t>(group.size);
      if (fewest[i - 1][before] == kUnreachable || fewest[i - 1][before] + count != fewest[i][rest])
        continue;
      chosen.insert(chosen.end(), group.items.begin(),
                    group.items.begin() + static_cast<ptrdiff_t>(count));
      rest = before;
      break;
    }
  }
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

std::optional<std::vector<IndexedOffer>> choose_nodes(const std::vector<IndexedOffer>& offers,
                                                      int gpus) {
  // Largest first until one node covers the rest; that one is the smallest which does. No choice of
  // nodes can be smaller in number.
  int largest_offer = 0;
  for (const IndexedOffer& offer : offers) largest_offer = std::max(largest_offer, offer.gpus);
  std::vector<std::vector<IndexedOffer>> of_size(static_cast<size_t>(largest_offer) + 1);
  for (const IndexedOffer& offer : offers)
    if (offer.gpus > 0) of_size[static_cast<size_t>(offer.gpus)].push_back(offer);
  std::vector<IndexedOffer> free, take;
  free.reserve(offers.size());
  for (auto size = of_size.rbegin(); size != of_size.rend(); ++size)
    free.insert(free.end(), size->begin(), size->end());
  int rest = gpus;
  for (size_t largest = 0; rest > 0; ++largest) {
    if (largest == free.size()) return std::nullopt;
    if (free[largest].gpus < rest) {
      rest -= free[largest].gpus;
      take.push_back(free[largest]);
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
  sizes.reserve(free.size());
  for (const IndexedOffer& offer : free) sizes.push_back(offer.gpus);
  const auto subset = exact_subset(sizes, gpus, take.size());
  if (!subset) return take;
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
