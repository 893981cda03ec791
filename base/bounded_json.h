// SPDX-License-Identifier: MIT
// JSON that somebody else has written. nlohmann's parser does not recurse, but copying and writing
// a value does: deep nesting would end in a stack overflow; and three bytes of text can become a
// hundred of memory.
#pragma once

#include <limits>
#include <string_view>

#include "base/json.h"

namespace flextrain {

struct JsonBounds {
  size_t depth = 100;                                  // of lists and objects in each other
  size_t memory = std::numeric_limits<size_t>::max();  // bytes of the parsed value, estimated
};

// parse_json() within bounds. kDataLoss: no JSON, or nested too deep; kResourceExhausted: needs
// more memory than allowed.
Result<Json> parse_bounded_json(std::string_view text, std::string_view what,
                                const JsonBounds& bounds = {});

}  // namespace flextrain
