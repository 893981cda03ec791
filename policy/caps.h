// SPDX-License-Identifier: MIT
// How many more GPUs users, accounts and all elastic jobs together may hold beyond their bases.
// Pure. Private to policy/.
#pragma once

#include <climits>
#include <map>
#include <string>

#include "policy/growth_rules.h"
#include "policy/policy.h"

namespace flextrain::policy {

struct Allowance {
  int gpus = INT_MAX;                   // may be negative after a cap was lowered
  GrowthRule rule = GrowthRule::kGrow;  // the cap that bounds it
};

class Caps {
 public:
  // What is held and what is on its way counts.
  Caps(const Snapshot& snapshot, const Parameters& parameters);

  Allowance left(const ElasticJobView& job) const;
  void add(const ElasticJobView& job, int gpus);  // a growth of this tick

 private:
  const Parameters& parameters_;
  int all_ = 0, reserve_most_ = INT_MAX;
  std::map<std::string, int> users_, accounts_;
};

}  // namespace flextrain::policy
