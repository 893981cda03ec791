// SPDX-License-Identifier: MIT
// Wording shared by the reasons. Pure. Private to policy/.
#pragma once

#include <fmt/core.h>

#include <string>

namespace flextrain::policy {

inline std::string gpu_count(int gpus) {
  return fmt::format("{} GPU{}", gpus, gpus == 1 ? "" : "s");
}

}  // namespace flextrain::policy
