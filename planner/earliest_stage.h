// SPDX-License-Identifier: MIT
// The stage whose moment comes first, of equals the one with the lowest number: a tournament over
// one time per stage. Internal to planner/; pure.
#pragma once

#include <bit>
#include <cstddef>
#include <limits>
#include <vector>

namespace flextrain::planner {

class EarliestStage {
 public:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  explicit EarliestStage(int stages)
      : leaves_(std::bit_ceil(static_cast<size_t>(stages))),
        times_(leaves_, kNever),
        winners_(2 * leaves_) {
    for (size_t leaf = 0; leaf < leaves_; ++leaf) winners_[leaves_ + leaf] = static_cast<int>(leaf);
    for (size_t node = leaves_ - 1; node > 0; --node) winners_[node] = winners_[2 * node];
  }

  double time_of(int stage) const { return times_[stage]; }
  int stage() const { return winners_[1]; }
  double time() const { return times_[stage()]; }

  void set(int stage, double time) {
    times_[stage] = time;
    for (size_t node = (leaves_ + static_cast<size_t>(stage)) / 2; node > 0; node /= 2) {
      const int left = winners_[2 * node], right = winners_[2 * node + 1];
      winners_[node] = times_[right] < times_[left] ? right : left;
    }
  }

 private:
  size_t leaves_;
  std::vector<double> times_;
  std::vector<int> winners_;  // a binary heap's layout: the winner of all is [1]
};

}  // namespace flextrain::planner
