// SPDX-License-Identifier: MIT
// Reader for Slurm-style `Key=Value` files (slurm.conf(5): '#' begins a comment, keys are case-
// insensitive, one pair per line). Pure: text in, entries out.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace flextrain {

struct ConfigEntry {
  std::string key;  // as written; compare with to_lower()
  std::string value;
  int line = 0;  // 1-based
};

// All entries of `text` in order. `file_name` is for messages only. A line that is neither blank, a
// comment nor Key=Value, and a key that appears twice, are kInvalidArgument "file:line: …".
Result<std::vector<ConfigEntry>> parse_key_value_config(std::string_view text,
                                                        std::string_view file_name);

}  // namespace flextrain
