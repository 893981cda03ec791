// SPDX-License-Identifier: MIT
#include "base/text.h"

#include <sys/random.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>

namespace flextrain {

std::string_view trim(std::string_view text) {
  const auto is_space = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

std::string to_lower(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  if (text.empty()) return parts;
  for (;;) {
    const size_t at = text.find(separator);
    parts.emplace_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

namespace {

// Bytes of the UTF-8 character that `text` begins with; 0 when it is none or a control character.
size_t printable_length(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text.front());
  if (lead < 0x80) return lead >= 0x20 && lead != 0x7f ? 1 : 0;
  const size_t length = lead >= 0xf5   ? 0
                        : lead >= 0xf0 ? 4
                        : lead >= 0xe0 ? 3
                        : lead >= 0xc2 ? 2
                                       : 0;
  if (length == 0 || text.size() < length) return 0;
  for (size_t at = 1; at < length; ++at) {
    if ((static_cast<unsigned char>(text[at]) & 0xc0) != 0x80) return 0;
  }
  const bool c1_control = lead == 0xc2 && static_cast<unsigned char>(text[1]) < 0xa0;
  return c1_control ? 0 : length;
}

}  // namespace

std::string printable(std::string_view text, size_t max_bytes) {
  std::string shown;
  while (!text.empty()) {
    const size_t length = printable_length(text);
    if (shown.size() + std::max<size_t>(length, 1) > max_bytes) return shown + "…";
    length == 0 ? shown.push_back('?') : static_cast<void>(shown.append(text.substr(0, length)));
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return shown;
}

Result<int64_t> parse_int(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) {
    return invalid_argument("'{}' is not a whole number", text);
  }
  return value;
}

Result<double> parse_double(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() ||
      !std::isfinite(value)) {
    return invalid_argument("'{}' is not a number", text);
  }
  return value;
}

Result<bool> parse_bool(std::string_view text) {
  const std::string lower = to_lower(text);
  if (lower == "yes" || lower == "true" || lower == "on" || lower == "1") return true;
  if (lower == "no" || lower == "false" || lower == "off" || lower == "0") return false;
  return invalid_argument("'{}' is not yes or no", text);
}

std::string format_double(double value) {
  char buffer[64];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);
  (void)error;  // 64 bytes hold every double
  return std::string(buffer, end);
}

std::string format_hex_double(double value) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, "%a", value);
  return buffer;
}

std::string random_hex_id() {
  unsigned char bytes[16] = {};
  size_t have = 0;
  while (have < sizeof bytes) {
    const ssize_t got = ::getrandom(bytes + have, sizeof bytes - have, 0);
    if (got > 0) have += static_cast<size_t>(got);
  }
  std::string id;
  for (const unsigned char byte : bytes) id += fmt::format("{:02x}", byte);
  return id;
}

}  // namespace flextrain
