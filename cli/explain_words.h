// SPDX-License-Identifier: MIT
// What the rules, symbols and alternatives of a decision mean, and where its numbers come from.
// "" for what this release does not know. Pure.
#pragma once

#include <string>

#include "base/json.h"

namespace flextrain::cli {

std::string rule_text(const std::string& rule);
// `row`: of the explain query; the same letter may mean another thing for another kind.
std::string symbol_text(const Json& row, const std::string& symbol);
std::string symbol_source(const Json& row, const std::string& symbol);
// Of an entry's "refused_by".
std::string alternative_text(const std::string& refused_by);

}  // namespace flextrain::cli
