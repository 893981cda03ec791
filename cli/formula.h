// SPDX-License-Identifier: MIT
// Evaluates the policy's formulas with a decision's inputs, so that `explain` shows the numbers put
// in and says itself whether each comparison holds. Pure.
//
//   formula    = clause { "and" clause }
//   clause     = expression { comparison expression }       comparison: > < >= <= =
//   expression = arithmetic over + - * / ( ), numbers, symbols, exp(), min(,), max(,)
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace flextrain::cli {

struct EvaluatedClause {
  std::string text;     // as written: "saved = R - R/S > O"
  std::string numbers;  // values for symbols: "311.3 = 500 - 500/2.65 > 12"
  bool holds = false;   // every comparison in it
};

// kInvalidArgument for a text that is no formula, kNotFound for a symbol without a value.
Result<std::vector<EvaluatedClause>> evaluate_formula(std::string_view formula,
                                                      const std::map<std::string, double>& inputs);

}  // namespace flextrain::cli
