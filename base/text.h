// SPDX-License-Identifier: MIT
// Strict text ↔ value conversions shared by configuration, flags and output. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace flextrain {

std::string_view trim(std::string_view text);
std::string to_lower(std::string_view text);
// For logs and messages: control characters and bytes that are no UTF-8 become '?', and no more
// than `max_bytes` are kept ("…" follows), so that foreign text can neither forge a line nor flood
// one.
std::string printable(std::string_view text, size_t max_bytes = 4096);
// "a,b,,c" → {"a","b","","c"}; "" → {}.
std::vector<std::string> split(std::string_view text, char separator);

// The whole text must be one number; anything else is kInvalidArgument naming the text.
Result<int64_t> parse_int(std::string_view text);
Result<double> parse_double(std::string_view text);  // finite numbers only
Result<bool> parse_bool(std::string_view text);      // yes/no, true/false, on/off, 1/0

// Shortest decimal that reads back as the same double.
std::string format_double(double value);
// C99 hex float ("0x1.5bf0a8b145769p+1"), exact.
std::string format_hex_double(double value);

// 128 random bits as 32 hex digits, from the kernel. For nonces and ids, never for training.
std::string random_hex_id();

}  // namespace flextrain
