// SPDX-License-Identifier: MIT
// Who gives GPUs back first, in numbers alone: shared by the live reclaim (policy/reclaim.cc) and
// the simulator. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "policy/policy.h"

namespace flextrain::policy {

struct VictimFacts {
  uint32_t id = 0;
  int expanded = 0;  // GPUs it could give
};

// The order in which victims are asked for `need` GPUs; equal ones by id. Indices into `victims`.
std::vector<size_t> victim_order(VictimRule rule, const std::vector<VictimFacts>& victims,
                                 int need);

}  // namespace flextrain::policy
