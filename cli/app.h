// SPDX-License-Identifier: MIT
// sflex's command line: parses it, asks, prints. Never throws.
#pragma once

#include <string>
#include <vector>

#include "cli/environment.h"

namespace flextrain::cli {

struct AppResult {
  int exit_code = 0;     // 0 done, 1 something is wrong, 2 bad usage
  std::string out, err;  // for stdout and stderr
};
// `arguments` without the program's name.
AppResult run_sflex(const std::vector<std::string>& arguments, Environment& environment);

}  // namespace flextrain::cli
