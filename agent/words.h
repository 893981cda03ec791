// SPDX-License-Identifier: MIT
// Words of a command line as a shell would split them, without expansion. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace flextrain::agent {

// Blanks separate; '…', "…" and \x quote. kInvalidArgument when a quote is open.
Result<std::vector<std::string>> split_words(std::string_view text);

}  // namespace flextrain::agent
