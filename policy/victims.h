// SPDX-License-Identifier: MIT
// Who gives GPUs back first, in numbers alone: shared by the live reclaim (policy/reclaim.cc) and
// the simulator. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "policy/policy.h"

namespace flextrain::policy {

struct VictimFacts {
  uint32_t id = 0;
  int expanded = 0;     // GPUs it could give
  bool spared = false;  // is about to end or in a save: asked after the others
};

// The order in which victims are asked for `need` GPUs; equal ones by id. Indices into `victims`.
// Where the others do not cover the need, nobody is spared: a switch of few is less than one of
// all.
std::vector<size_t> victim_order(VictimRule rule, std::vector<VictimFacts>& victims, int need);

// Whether a job is spared that ends in `remaining` seconds, where that is known.
bool is_spared(const Parameters& parameters, std::optional<double> remaining, bool saving);

}  // namespace flextrain::policy
