// SPDX-License-Identifier: MIT
#include "cli/doctor.h"

#include "cli/doctor_checks.h"
#include "cli/values.h"

namespace flextrain::cli {
namespace {

std::string_view level_name(FindingLevel level) {
  switch (level) {
    case FindingLevel::kOk:
      return "ok";
    case FindingLevel::kNote:
      return "note";
    case FindingLevel::kWarning:
      return "warning";
    case FindingLevel::kFault:
      return "FAULT";
  }
  return "?";
}

std::string counted(int count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

}  // namespace

std::vector<Finding> examine(Environment& environment) {
  Site site = look_at_site(environment);
  std::vector<Finding> findings;
  for (const Check check : kChecks) check(environment, site, findings);
  return findings;
}

std::string print_findings(const std::vector<Finding>& findings) {
  std::string out;
  int faults = 0, warnings = 0;
  for (const Finding& finding : findings) {
    faults += finding.level == FindingLevel::kFault;
    warnings += finding.level == FindingLevel::kWarning;
    out += fmt::format("{:<8} {:<14} {}\n", level_name(finding.level), finding.subject,
                       printable(finding.text));
    if (!finding.mend.empty()) out += fmt::format("{:<23} -> {}\n", "", printable(finding.mend));
  }
  return out + fmt::format("\n{}, {}\n", faults == 0 ? "no fault" : counted(faults, "fault"),
                           warnings == 0 ? "no warning" : counted(warnings, "warning"));
}

Json findings_to_json(const std::vector<Finding>& findings) {
  Json rows = Json::array();
  for (const Finding& finding : findings)
    rows.push_back(
        {{"level",
          finding.level == FindingLevel::kFault ? "fault" : std::string(level_name(finding.level))},
         {"subject", finding.subject},
         {"text", finding.text},
         {"mend", finding.mend}});
  return Json{{"rows", rows}};
}

}  // namespace flextrain::cli
