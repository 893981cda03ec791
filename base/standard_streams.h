// SPDX-License-Identifier: MIT
// What a program does about its standard streams before anything else.
#pragma once

namespace flextrain {

// Opens /dev/null for each of stdin, stdout and stderr that is closed: otherwise the next file the
// program opens gets that number, and messages are written into it.
void keep_standard_streams();

// False when what was printed to stdout did not arrive (a full disk, a closed pipe). Flushes.
bool stdout_arrived();

}  // namespace flextrain
