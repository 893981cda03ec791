// SPDX-License-Identifier: MIT
// Agreement between ranks on success, so that all take the same branch. Collective calls.
#pragma once

#include <string>

#include "base/json.h"
#include "base/status.h"
#include "trainer/comm/communicator.h"

namespace flextrain::trainer {

// The first non-ok Status over all ranks, with "rank R: " before its message, the same on every
// rank; ok when all are.
Status agree(Communicator& comm, const Status& mine);

// Root's value or root's error, on every rank. `mine` is only looked at on the root.
Result<std::string> share(Communicator& comm, int root, const Result<std::string>& mine);

}  // namespace flextrain::trainer
