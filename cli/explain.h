// SPDX-License-Identifier: MIT
// One decision in words and numbers. Pure.
#pragma once

#include <string>

#include "base/json.h"

namespace flextrain::cli {

// `row` is the row of the explain query (docs/sflex.md).
std::string explain_decision(const Json& row);

}  // namespace flextrain::cli
