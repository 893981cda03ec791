// SPDX-License-Identifier: MIT
#include "cli/values.h"

#include <cmath>
#include <limits>

#include "base/text.h"

namespace flextrain::cli {

const Json& member(const Json& row, std::string_view key) {
  static const Json kNull;
  if (!row.is_object()) return kNull;
  const auto found = row.find(key);
  return found == row.end() ? kNull : *found;
}

int64_t int_of(const Json& row, std::string_view key) {
  const Json& value = member(row, key);
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number_float()) return 0;
  const double number = value.get<double>();
  return std::abs(number) < 9e18 ? static_cast<int64_t>(number) : 0;
}

double double_of(const Json& row, std::string_view key) {
  const Json& value = member(row, key);
  return value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
}

std::string text_of(const Json& row, std::string_view key) {
  const Json& value = member(row, key);
  return value.is_string() ? value.get<std::string>() : std::string();
}

bool bool_of(const Json& row, std::string_view key) {
  const Json& value = member(row, key);
  return value.is_boolean() && value.get<bool>();
}

std::string printable(std::string_view text) { return flextrain::printable(text, text.size()); }

size_t width_of(std::string_view utf8) {
  size_t count = 0;
  for (const char c : utf8)
    if ((static_cast<unsigned char>(c) & 0xc0) != 0x80) ++count;
  return count;
}

std::string shortened(const std::string& utf8, size_t width) {
  if (width_of(utf8) <= width) return utf8;
  if (width == 0) return "";
  std::string out;
  size_t count = 0;
  for (size_t i = 0; i < utf8.size();) {
    size_t next = i + 1;
    while (next < utf8.size() && (static_cast<unsigned char>(utf8[next]) & 0xc0) == 0x80) ++next;
    if (++count == width) break;
    out += utf8.substr(i, next - i);
    i = next;
  }
  return out + '+';
}

std::string number_text(double value, int digits) {
  if (!std::isfinite(value)) return "";
  if (value == std::floor(value) && std::abs(value) < 1e15)
    return fmt::format("{:.0f}", value + 0.0);
  const double magnitude = std::abs(value);
  if (magnitude >= 1e15 || magnitude < 1e-6) return fmt::format("{:.{}g}", value, digits);
  const int whole = static_cast<int>(std::floor(std::log10(magnitude))) + 1;
  std::string text = fmt::format("{:.{}f}", value, std::max(0, digits - whole));
  if (text.find('.') != std::string::npos) {
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
  }
  return text;
}

std::string bytes_text(double bytes) {
  if (!std::isfinite(bytes) || bytes <= 0) return "";
  static constexpr const char* kUnits[] = {"", "K", "M", "G", "T", "P"};
  size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < std::size(kUnits)) {
    bytes /= 1024;
    ++unit;
  }
  return number_text(bytes, 3) + kUnits[unit];
}

}  // namespace flextrain::cli
