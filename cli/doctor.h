// SPDX-License-Identifier: MIT
// `sflex doctor`: is flextrain installed so that it works, and if not, how to mend it. Needs no
// controller; asks one where there is one.
#pragma once

#include <string>
#include <vector>

#include "cli/environment.h"

namespace flextrain::cli {

enum class FindingLevel { kOk, kNote, kWarning, kFault };  // only faults make doctor fail
struct Finding {
  FindingLevel level = FindingLevel::kOk;
  std::string subject;  // "munge", "plugins" …
  std::string text;     // what was found
  std::string mend;     // what to do; "" when nothing
};

std::vector<Finding> examine(Environment& environment);
std::string print_findings(const std::vector<Finding>& findings);
Json findings_to_json(const std::vector<Finding>& findings);

}  // namespace flextrain::cli
