// SPDX-License-Identifier: MIT
#include "policy/caps.h"

#include <algorithm>
#include <cmath>

namespace flextrain::policy {

Caps::Caps(const Snapshot& snapshot, const Parameters& parameters)
    : Caps(parameters, snapshot.idle_gpus) {
  for (const ElasticJobView& job : snapshot.elastic) {
    add_held(job.user, job.account, std::max(0, job.held_gpus - job.base_gpus) + job.pending_gpus);
    for (const CompanionView& companion : job.companions)
      if (companion.leaving) idle_gpus_ += companion.gpus;
  }
}

void Caps::add_held(const std::string& user, const std::string& account, int gpus) {
  held_ += gpus;
  add_growth(user, account, gpus);
}

void Caps::add_growth(const std::string& user, const std::string& account, int gpus) {
  all_ += gpus;
  users_[user] += gpus;
  accounts_[account] += gpus;
}

Allowance Caps::left(const std::string& user, const std::string& account) const {
  Allowance allowance;
  const auto bound = [&](int most, int held, GrowthRule rule) {
    if (most - held < allowance.gpus) allowance = {most - held, rule};
  };
  const auto held = [](const std::map<std::string, int>& by, const std::string& name) {
    const auto found = by.find(name);
    return found == by.end() ? 0 : found->second;
  };
  if (parameters_.user_max_expanded > 0)
    bound(parameters_.user_max_expanded, held(users_, user), GrowthRule::kUserCap);
  if (parameters_.account_max_expanded > 0)
    bound(parameters_.account_max_expanded, held(accounts_, account), GrowthRule::kAccountCap);
  if (parameters_.idle_reserve > 0) {
    const double most = (1 - parameters_.idle_reserve) * (idle_gpus_ + held_);
    bound(static_cast<int>(std::floor(most + 1e-9)), all_, GrowthRule::kIdleReserve);
  }
  return allowance;
}

}  // namespace flextrain::policy
