// SPDX-License-Identifier: MIT
// `sflex explain --replay`: the policy asked again with what the controller stored. Pure.
#pragma once

#include <string>

#include "base/json.h"
#include "base/status.h"

namespace flextrain::cli {

struct Replayed {
  bool same = false;
  std::string text;  // lines for people
};

// `row`: an answer to the explain query, with its snapshot. kFailedPrecondition where there is
// nothing to replay, with the reason.
Result<Replayed> replay_decision(const Json& row);

}  // namespace flextrain::cli
