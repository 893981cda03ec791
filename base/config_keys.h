// SPDX-License-Identifier: MIT
// Keys of a configuration by name: how each reads and shows its value. One maker per type of value;
// `where` returns a reference to the field of a Config that it is told to fill.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>

#include "base/status.h"
#include "base/text.h"

namespace flextrain {

template <class Config>
struct ConfigKeySpec {
  std::string name;
  std::function<Status(Config&, const std::string&)> set;
  std::function<std::string(const Config&)> get;
};

template <class Config, class Where>
ConfigKeySpec<Config> yes_no_key(std::string name, Where where) {
  return {std::move(name),
          [where](Config& config, const std::string& text) -> Status {
            ASSIGN_OR_RETURN(where(config), parse_bool(text));
            return {};
          },
          [where](const Config& config) {
            return std::string(where(const_cast<Config&>(config)) ? "yes" : "no");
          }};
}

template <class Config, class Where>
ConfigKeySpec<Config> integer_key(std::string name, int64_t low, int64_t high, Where where) {
  return {
      std::move(name),
      [=](Config& config, const std::string& text) -> Status {
        ASSIGN_OR_RETURN(const int64_t value, parse_int(text));
        if (value < low || value > high)
          return invalid_argument("{} is outside {} … {}", value, low, high);
        where(config) = static_cast<std::remove_reference_t<decltype(where(config))>>(value);
        return {};
      },
      [where](const Config& config) { return std::to_string(where(const_cast<Config&>(config))); }};
}

template <class Config, class Where>
ConfigKeySpec<Config> number_key(std::string name, double low, double high, Where where) {
  return {
      std::move(name),
      [=](Config& config, const std::string& text) -> Status {
        ASSIGN_OR_RETURN(const double value, parse_double(text));
        if (!(value >= low && value <= high))
          return invalid_argument("{} is outside {} … {}", text, format_double(low),
                                  format_double(high));
        where(config) = value;
        return {};
      },
      [where](const Config& config) { return format_double(where(const_cast<Config&>(config))); }};
}

// A key whose values have names.
template <class Config, class Parse, class Name, class Where>
ConfigKeySpec<Config> named_key(std::string key, Parse parse, Name name, Where where) {
  return {
      std::move(key),
      [=](Config& config, const std::string& value) -> Status {
        ASSIGN_OR_RETURN(where(config), parse(value));
        return {};
      },
      [=](const Config& config) { return std::string(name(where(const_cast<Config&>(config)))); }};
}

}  // namespace flextrain
