// SPDX-License-Identifier: MIT
// SIGUSR1 and SIGTERM as a request to checkpoint and leave at the next step boundary.
#pragma once

namespace flextrain::trainer {

// Installs the handlers; from now on neither signal ends the process, however often it comes.
void catch_stop_signals();
bool stop_requested();  // async-signal-safe flag
// After a save that failed under an agent: training goes on until the next signal.
void clear_stop_request();

}  // namespace flextrain::trainer
