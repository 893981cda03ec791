// SPDX-License-Identifier: MIT
// sflex: hands arguments and the real system to app.h, prints what comes back.
#include <csignal>
#include <cstdio>

#include "cli/app.h"
#include "cli/system.h"

int main(int argc, char** argv) {
  // A closed pipe (sflex jobs | head) ends us silently, as it does sacct.
  std::signal(SIGPIPE, SIG_DFL);
  const auto environment = flextrain::cli::make_system_environment();
  const flextrain::cli::AppResult result =
      flextrain::cli::run_sflex(std::vector<std::string>(argv + 1, argv + argc), *environment);
  std::fwrite(result.out.data(), 1, result.out.size(), stdout);
  std::fwrite(result.err.data(), 1, result.err.size(), stderr);
  if (std::fflush(stdout) != 0) return 1;
  return result.exit_code;
}
