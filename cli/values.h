// SPDX-License-Identifier: MIT
// Reading of untrusted JSON rows and plain text for terminals. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"

namespace flextrain::cli {

// A member of an object, a null when it is absent or `row` is no object.
const Json& member(const Json& row, std::string_view key);
int64_t int_of(const Json& row, std::string_view key);       // 0 when absent or no number
double double_of(const Json& row, std::string_view key);     // NaN likewise
std::string text_of(const Json& row, std::string_view key);  // "" likewise
bool bool_of(const Json& row, std::string_view key);

// Control characters replaced by '?', so that a job's name cannot move a terminal's cursor; bytes
// that are no UTF-8 likewise.
std::string printable(std::string_view text);
size_t width_of(std::string_view utf8);  // in characters
// At most `width` characters; a cut value ends in '+', as sacct does it.
std::string shortened(const std::string& utf8, size_t width);

// Up to `digits` significant digits, no exponent for ordinary sizes: "12.5", "1850", "0.00107".
std::string number_text(double value, int digits = 4);
// 1024-based: "512K", "1.5G".
std::string bytes_text(double bytes);

}  // namespace flextrain::cli
