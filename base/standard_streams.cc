// SPDX-License-Identifier: MIT
#include "base/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>

namespace flextrain {

void keep_standard_streams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0) continue;
    // The lowest free number is `fd`: those below are open.
    (void)!::open("/dev/null", fd == STDIN_FILENO ? O_RDONLY : O_WRONLY);
  }
}

bool stdout_arrived() { return std::fflush(stdout) == 0 && std::ferror(stdout) == 0; }

}  // namespace flextrain
