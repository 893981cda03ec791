// SPDX-License-Identifier: MIT
// The keys of flextrain.conf that are the policy's own: the controller and the simulator read the
// same ones, with the same bounds. Pure.
#pragma once

#include <vector>

#include "base/config_keys.h"
#include "policy/policy.h"

namespace flextrain::policy {

// In the order in which they are shown. `Policy`, which sets many, is not among them
// (parse_preset).
const std::vector<ConfigKeySpec<Parameters>>& settings();

}  // namespace flextrain::policy
