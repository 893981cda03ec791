// SPDX-License-Identifier: GPL-2.0-or-later
// How long one kind of work took: quantiles of the last 512 times, the longest since the start.
// Keeps its own figures and nothing else; not thread-safe.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "base/json.h"

namespace flextrain::slurm_plugin {

class Durations {
 public:
  void add(double seconds) {
    times_[seen_++ % times_.size()] = static_cast<float>(seconds);
    last_ = seconds;
    sum_ += seconds;
    longest_ = std::max(longest_, seconds);
  }

  // NAME_last_seconds, NAME_p50_seconds, NAME_p99_seconds, NAME_max_seconds, and of all since the
  // start NAME_sum_seconds and NAME_count; 0 before the first.
  Json report(const std::string& name) const {
    const auto kept = static_cast<std::ptrdiff_t>(std::min(seen_, times_.size()));
    std::vector<float> sorted(times_.begin(), times_.begin() + kept);
    std::sort(sorted.begin(), sorted.end());
    const auto quantile = [&](double share) {
      if (sorted.empty()) return 0.0;
      const auto at = static_cast<size_t>(share * static_cast<double>(sorted.size() - 1) + 0.5);
      return static_cast<double>(sorted[at]);
    };
    return {{name + "_last_seconds", last_},         {name + "_p50_seconds", quantile(0.5)},
            {name + "_p99_seconds", quantile(0.99)}, {name + "_max_seconds", longest_},
            {name + "_sum_seconds", sum_},           {name + "_count", seen_}};
  }

 private:
  std::array<float, 512> times_{};  // a ring
  size_t seen_ = 0;
  double last_ = 0, longest_ = 0, sum_ = 0;
};

}  // namespace flextrain::slurm_plugin
