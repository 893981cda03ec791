// SPDX-License-Identifier: MIT
// The real outside world: munge, the controller's endpoint, processes, files.
#pragma once

#include <memory>

#include "cli/environment.h"

namespace flextrain::cli {

std::unique_ptr<Environment> make_system_environment();

}  // namespace flextrain::cli
