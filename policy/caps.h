// SPDX-License-Identifier: MIT
// How many more GPUs users, accounts and all elastic jobs together may hold beyond their bases.
// Pure. Private to policy/ and the simulator.
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
  // `idle_gpus`: with those that are on their way back.
  Caps(const Parameters& parameters, int idle_gpus)
      : parameters_(parameters), idle_gpus_(idle_gpus) {}
  // What is held and what is on its way counts.
  Caps(const Snapshot& snapshot, const Parameters& parameters);

  // Of a job that holds so many beyond its base already.
  void add_held(const std::string& user, const std::string& account, int gpus);
  void add_growth(const std::string& user, const std::string& account, int gpus);  // of this tick
  Allowance left(const std::string& user, const std::string& account) const;

 private:
  const Parameters& parameters_;
  // What the reserve is a share of: what no base and no rigid job holds, whoever grows in this
  // tick.
  int idle_gpus_ = 0, held_ = 0;
  int all_ = 0;
  std::map<std::string, int> users_, accounts_;
};

}  // namespace flextrain::policy
