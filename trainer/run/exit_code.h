// SPDX-License-Identifier: MIT
// Exit codes of docs/agent-contract.md.
#pragma once

#include "base/status.h"

namespace flextrain::trainer {

inline constexpr int kExitComplete = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitNotSaved = 74;      // told to stop, or at the end, but it cannot be saved
inline constexpr int kExitUnusable = 78;      // configuration or data; running again will not help
inline constexpr int kExitCheckpointed = 85;  // saved on request; run again to continue

// 78 for what the user has to change, 1 for the rest. Precondition: !status.ok().
int exit_code_for(const Status& status);

}  // namespace flextrain::trainer
