// SPDX-License-Identifier: MIT
// Tables as sacct prints them. Pure.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace flextrain::cli {

struct Field {
  std::string name;
  int width = 10;  // negative: left-aligned
  std::function<std::string(const Json& row)> value;
};

struct TableStyle {
  bool header = true;
  bool parsable = false;  // '|' between fields, nothing cut, no dashes
};

// "JobID,State%12,Reason%-40" out of `fields`, any case; "ALL" is all of them. kInvalidArgument
// names an unknown field.
Result<std::vector<Field>> select_fields(const std::vector<Field>& fields, std::string_view format);

// One line per row, each ended by '\n'.
std::string print_table(const std::vector<Field>& fields, const std::vector<Json>& rows,
                        const TableStyle& style);

// The names for --helpformat, four a line.
std::string help_format(const std::vector<Field>& fields);

}  // namespace flextrain::cli
