// SPDX-License-Identifier: MIT
// The table of every job.toml key: section, name, where it is stored, its range. Reader, JSON and
// documentation test all walk this one table.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"
#include "trainer/config/train_config.h"

namespace flextrain::trainer {

struct ConfigField {
  std::string_view section;
  std::string_view name;
  std::variant<int*, int64_t*, uint64_t*, double*, bool*, std::string*, planner::Numerics*> target;
  double minimum = -std::numeric_limits<double>::infinity();
  double maximum = std::numeric_limits<double>::infinity();
  bool above_minimum = false;  // the minimum itself is not allowed
};

// All fields of `config`, in the order of the documentation.
std::vector<ConfigField> config_fields(TrainConfig& config);

// What a field accepts, for messages: "an integer from 1 to 128".
std::string describe_field(const ConfigField& field);

// A value as TOML, JSON or the command line gave it.
using ConfigValue = std::variant<bool, int64_t, double, std::string>;

// Stores `value` in the field. kInvalidArgument "section.name must be …, not …" for a wrong type or
// a value out of range; an integer is taken where a number is asked for.
Status assign_field(const ConfigField& field, const ConfigValue& value);

// Rules that concern several keys at once (hidden % heads and the like). kInvalidArgument names the
// keys and their values.
Status validate_config(const TrainConfig& config);

}  // namespace flextrain::trainer
