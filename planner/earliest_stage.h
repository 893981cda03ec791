// SPDX-License-Identifier: MIT
// The stage whose moment comes first, of equals the one with the lowest number. Internal to
// planner/; pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

namespace flextrain::planner {

// One time per stage, and the least of each eight of them: few comparisons, none of which depends
// on the one before, are faster here than a heap.
class EarliestStage {
 public:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  explicit EarliestStage(int stages)
      : least_((static_cast<size_t>(stages) + kBlock - 1) / kBlock, kNever),
        times_(least_.size() * kBlock, kNever) {}

  double time_of(int stage) const { return times_[stage]; }
  double time() const { return *std::min_element(least_.begin(), least_.end()); }
  // Of kNever only when that is everybody's.
  int stage() const {
    const double first = time();
    size_t at = 0;
    while (least_[at] != first) ++at;
    at *= kBlock;
    while (times_[at] != first) ++at;
    return static_cast<int>(at);
  }

  void set(int stage, double time) {
    times_[stage] = time;
    const size_t block = static_cast<size_t>(stage) / kBlock;
    const double* t = &times_[block * kBlock];
    least_[block] = std::min(std::min(std::min(t[0], t[1]), std::min(t[2], t[3])),
                             std::min(std::min(t[4], t[5]), std::min(t[6], t[7])));
  }

 private:
  static constexpr size_t kBlock = 8;
  std::vector<double> least_, times_;
};

}  // namespace flextrain::planner
