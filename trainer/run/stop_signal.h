// SPDX-License-Identifier: MIT
// SIGUSR1 and SIGTERM as a request to checkpoint and leave at the next step boundary. They are
// blocked and looked for, never handled: no handler may run while oneDNN computes.
#pragma once

namespace flextrain::trainer {

// From now on neither signal ends or interrupts the process, however often it comes. To be called
// before any thread is started: threads inherit the mask.
void keep_stop_signals();
// Whether one has come since the start or since the last clear_stop_request(). A system call.
bool stop_requested();
// After a save that failed under an agent: training goes on until the next signal.
void clear_stop_request();

}  // namespace flextrain::trainer
