// SPDX-License-Identifier: MIT
// Checked reading of JSON fields: nlohmann's own conversions wrap or cast numbers that do not fit.
// Internal to planner/.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/status.h"

namespace flextrain::planner {

// The value of `key`, which must exist in the object `json`.
inline Result<const Json*> json_field(const Json& json, std::string_view key) {
  if (!json.is_object()) return invalid_argument("an object with '{}' was expected", key);
  const auto found = json.find(key);
  if (found == json.end()) return invalid_argument("field '{}' is missing", key);
  return &*found;
}

inline Result<int64_t> json_int64(const Json& value, std::string_view what, int64_t minimum,
                                  int64_t maximum) {
  if (!value.is_number_integer()) return invalid_argument("'{}' must be a whole number", what);
  const bool too_large = value.is_number_unsigned() &&
                         value.get<uint64_t>() > static_cast<uint64_t>(maximum < 0 ? 0 : maximum);
  const int64_t number = too_large ? 0 : value.get<int64_t>();
  if (too_large || number < minimum || number > maximum) {
    return invalid_argument("'{}' must be between {} and {}", what, minimum, maximum);
  }
  return number;
}

inline Result<int> json_int(const Json& value, std::string_view what,
                            int minimum = std::numeric_limits<int>::min(),
                            int maximum = std::numeric_limits<int>::max()) {
  ASSIGN_OR_RETURN(const int64_t number, json_int64(value, what, minimum, maximum));
  return static_cast<int>(number);
}

inline Result<int> int_field(const Json& json, std::string_view key,
                             int minimum = std::numeric_limits<int>::min(),
                             int maximum = std::numeric_limits<int>::max()) {
  ASSIGN_OR_RETURN(const Json* value, json_field(json, key));
  return json_int(*value, key, minimum, maximum);
}

inline Result<int64_t> int64_field(const Json& json, std::string_view key, int64_t minimum) {
  ASSIGN_OR_RETURN(const Json* value, json_field(json, key));
  return json_int64(*value, key, minimum, std::numeric_limits<int64_t>::max());
}

// Finite and >= 0.
inline Result<double> amount_field(const Json& json, std::string_view key) {
  ASSIGN_OR_RETURN(const Json* value, json_field(json, key));
  if (!value->is_number()) return invalid_argument("'{}' must be a number", key);
  const double number = value->get<double>();
  if (!std::isfinite(number) || number < 0) {
    return invalid_argument("'{}' must be a finite number >= 0", key);
  }
  return number;
}

inline Result<std::string> string_field(const Json& json, std::string_view key) {
  ASSIGN_OR_RETURN(const Json* value, json_field(json, key));
  if (!value->is_string()) return invalid_argument("'{}' must be a text", key);
  return value->get<std::string>();
}

inline Result<bool> bool_field(const Json& json, std::string_view key) {
  ASSIGN_OR_RETURN(const Json* value, json_field(json, key));
  if (!value->is_boolean()) return invalid_argument("'{}' must be true or false", key);
  return value->get<bool>();
}

inline Result<const Json*> array_field(const Json& json, std::string_view key, size_t maximum) {
  ASSIGN_OR_RETURN(const Json* value, json_field(json, key));
  if (!value->is_array()) return invalid_argument("'{}' must be a list", key);
  if (value->size() > maximum) {
    return invalid_argument("'{}' has {} elements, more than {}", key, value->size(), maximum);
  }
  return value;
}

}  // namespace flextrain::planner
