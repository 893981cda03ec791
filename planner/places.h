// SPDX-License-Identifier: MIT
// Where the ranks of a Plan are, as a profile knows it: nodes, and devices that are not alike.
// Internal to planner/; pure.
#pragma once

#include <algorithm>

#include "planner/plan.h"
#include "planner/scale_table.h"

namespace flextrain::planner {

// Of a Plan, and of copies of it on the ranks that follow. The profile must outlive it.
class Places {
 public:
  Places(const StepProfile& profile, const Plan& plan, int copies)
      : profile_(profile), stride_(num_ranks(plan)), copies_(copies) {}

  // Relative to the average device; of ranks that were not measured nothing is known.
  double slowness(int rank) const {
    if (profile_.rank_slowness.empty()) return 1;
    double slowest = 0;
    for (int copy = 0; copy < copies_; ++copy) {
      const auto at = static_cast<size_t>(rank) + static_cast<size_t>(copy) * stride_;
      slowest =
          std::max(slowest, at < profile_.rank_slowness.size() ? profile_.rank_slowness[at] : 1.0);
    }
    return slowest;
  }
  bool far(int a, int b) const {
    if (profile_.ranks_per_node == 0) return false;
    for (int copy = 0; copy < copies_; ++copy) {
      const int offset = copy * static_cast<int>(stride_);
      if (node(a + offset) != node(b + offset)) return true;
    }
    return false;
  }
  double hop(int a, int b) const {
    // What was not seen is taken to be like what was.
    const bool far_known = profile_.far_transfer_seconds > 0;
    const bool take_far = far_known && (far(a, b) || profile_.transfer_seconds <= 0);
    return take_far ? profile_.far_transfer_seconds : profile_.transfer_seconds;
  }
  // Whether the ranks of a stage in all copies, and of its layers' groups in the Plan, are on
  // several nodes.
  bool reduces_far(const Plan& plan) const {
    if (profile_.ranks_per_node == 0) return false;
    for (const ReduceGroup& group : plan.reduce_groups) {
      const auto [least, most] = std::minmax_element(group.ranks.begin(), group.ranks.end());
      if (least == group.ranks.end()) continue;
      if (node(*least) != node(*most + (copies_ - 1) * static_cast<int>(stride_))) return true;
    }
    return false;
  }

 private:
  int node(int rank) const { return rank / profile_.ranks_per_node; }
  const StepProfile& profile_;
  size_t stride_;
  int copies_;
};

}  // namespace flextrain::planner
