// SPDX-License-Identifier: MIT
// `sflex idle --tide`: idle GPUs by hour of the day, drawn. Pure.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace flextrain::cli {

// `rows`: of the tide query.
std::string draw_tide(const std::vector<Json>& rows);

}  // namespace flextrain::cli
