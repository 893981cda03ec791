// SPDX-License-Identifier: MIT
// Whole numbers out of JSON, for use within decode_json(): nlohmann's get<int>() wraps what does
// not fit and casts floating point, which is undefined beyond the type. Header-only.
#pragma once

#include <limits>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/json.h"

namespace flextrain {

// Throws std::out_of_range for anything but a whole number that fits.
template <typename Integer>
Integer whole_number(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (std::in_range<Integer>(number)) return static_cast<Integer>(number);
  } else if (value.is_number_integer()) {
    const auto number = value.get<int64_t>();
    if (std::in_range<Integer>(number)) return static_cast<Integer>(number);
  }
  throw std::out_of_range(fmt::format("a whole number between {} and {} is expected",
                                      std::numeric_limits<Integer>::min(),
                                      std::numeric_limits<Integer>::max()));
}

template <typename Integer>
std::vector<Integer> whole_numbers(const Json& list) {
  if (!list.is_array()) throw std::invalid_argument("a list of whole numbers is expected");
  std::vector<Integer> numbers;
  numbers.reserve(list.size());
  for (const Json& value : list) numbers.push_back(whole_number<Integer>(value));
  return numbers;
}

// `fallback` where `json`, an object, has no such member.
template <typename Integer>
Integer whole_number_or(const Json& json, const char* key, Integer fallback) {
  const auto found = json.find(key);
  return found == json.end() ? fallback : whole_number<Integer>(*found);
}

}  // namespace flextrain
