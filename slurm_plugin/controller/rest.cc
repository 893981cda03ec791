// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm_plugin/controller/rest.h"

#include <algorithm>

namespace flextrain::slurm_plugin {

std::chrono::nanoseconds rest_after(const RoundCost& cost, bool pressing,
                                    std::chrono::seconds tick) {
  using std::chrono::nanoseconds;
  constexpr nanoseconds kCheap = std::chrono::milliseconds(10);
  constexpr nanoseconds kLongest = std::chrono::minutes(4);
  const nanoseconds rest = std::min<nanoseconds>(std::max(4 * cost.wall, 49 * cost.cpu), tick);
  if (pressing || cost.cpu <= kCheap) return rest;
  return std::max(rest, std::min(1000 * (cost.cpu - kCheap), kLongest));
}

}  // namespace flextrain::slurm_plugin
