// SPDX-License-Identifier: MIT
#include "base/key_value_config.h"

#include <map>

#include "base/text.h"

namespace flextrain {

Result<std::vector<ConfigEntry>> parse_key_value_config(std::string_view text,
                                                        std::string_view file_name) {
  std::vector<ConfigEntry> entries;
  std::map<std::string, int> lines;  // lower-case key → where it was set
  int line_number = 0;
  for (const std::string& raw : split(text, '\n')) {
    ++line_number;
    std::string_view line = trim(std::string_view(raw).substr(0, raw.find('#')));
    if (line.empty()) continue;
    const size_t equals = line.find('=');
    const std::string_view key = trim(line.substr(0, equals));
    if (equals == std::string_view::npos || key.empty() ||
        key.find_first_of(" \t\"'") != std::string_view::npos) {
      return invalid_argument("{}:{}: expected Key=Value, found '{}'", file_name, line_number,
                              printable(line, 80));
    }
    const auto [first, added] = lines.emplace(to_lower(key), line_number);
    if (!added) {
      return invalid_argument("{}:{}: {} is set again (first on line {}); remove one", file_name,
                              line_number, printable(key, 80), first->second);
    }
    entries.push_back({std::string(key), std::string(trim(line.substr(equals + 1))), line_number});
  }
  return entries;
}

}  // namespace flextrain
