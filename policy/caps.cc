// SPDX-License-Identifier: MIT
#include "policy/caps.h"

#include <algorithm>
#include <cmath>

namespace flextrain::policy {

Caps::Caps(const Snapshot& snapshot, const Parameters& parameters) : parameters_(parameters) {
  int idle = snapshot.idle_gpus;
  for (const ElasticJobView& job : snapshot.elastic) {
    add(job, std::max(0, job.held_gpus - job.base_gpus) + job.pending_gpus);
    for (const CompanionView& companion : job.companions)
      if (companion.leaving) idle += companion.gpus;
  }
  if (parameters.idle_reserve > 0)
    reserve_most_ =
        static_cast<int>(std::floor((1 - parameters.idle_reserve) * (idle + all_) + 1e-9));
}

void Caps::add(const ElasticJobView& job, int gpus) {
  all_ += gpus;
  users_[job.user] += gpus;
  accounts_[job.account] += gpus;
}

Allowance Caps::left(const ElasticJobView& job) const {
  Allowance allowance;
  const auto bound = [&](int most, int held, GrowthRule rule) {
    if (most - held < allowance.gpus) allowance = {most - held, rule};
  };
  const auto held = [](const std::map<std::string, int>& by, const std::string& name) {
    const auto found = by.find(name);
    return found == by.end() ? 0 : found->second;
  };
  if (parameters_.user_max_expanded > 0)
    bound(parameters_.user_max_expanded, held(users_, job.user), GrowthRule::kUserCap);
  if (parameters_.account_max_expanded > 0)
    bound(parameters_.account_max_expanded, held(accounts_, job.account), GrowthRule::kAccountCap);
  if (parameters_.idle_reserve > 0) bound(reserve_most_, all_, GrowthRule::kIdleReserve);
  return allowance;
}

}  // namespace flextrain::policy
