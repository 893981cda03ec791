// SPDX-License-Identifier: MIT
#include "cli/explain_words.h"

#include <map>

#include "cli/values.h"

namespace flextrain::cli {
namespace {

bool of_growth(const Json& row) {
  const std::string kind = text_of(row, "kind");
  return kind == "grow" || kind == "refuse";
}

std::string rate_source(const Json& row) {
  const std::string forecast = text_of(row, "forecast");
  if (forecast.empty()) return "the controller's record of submissions";
  return fmt::format("Forecast={}, from the controller's record of {}", printable(forecast),
                     forecast == "idle" ? "idle GPUs" : "submissions");
}

std::string remaining_source(const Json& row) {
  const std::string source = text_of(row, "remaining_source");
  return source == "progress" ? "the trainer's progress"
         : source == "limit"  ? "the job's time limit"
         : source == "age"    ? "its age: neither progress nor a limit is known"
                              : "";
}

}  // namespace

// What each rule of policy/ asks for. An unknown one (of a newer controller) is simply not told.
std::string rule_text(const std::string& rule) {
  static const std::map<std::string, std::string> kRules = {
      {"gate",
       "a growth must pay for its pause before GPUs are likely to be wanted back: the probability "
       "of that, from the arrivals of late, must exceed the threshold"},
      {"best-entry",
       "the fastest entry of the scale table that fits the idle GPUs; no gate is set"},
      {"guard", "the time saved over the rest of the run must exceed the pause of the switch"},
      {"quiet-hours", "nobody grows in the hours of QuietHours"},
      {"scalings-per-hour", "no job switches more often within an hour than MaxScalingsPerHour"},
      {"user-cap", "the jobs of a user hold UserMaxExpandedGPUs beyond their bases at most"},
      {"account-cap",
       "the jobs of an account hold AccountMaxExpandedGPUs beyond their bases at most"},
      {"idle-reserve", "the share IdleReserve of what no base and no other job holds stays idle"},
      {"queue-not-empty", "nobody grows while a job waits for GPUs"},
      {"at-max", "no growth beyond the user's --elastic-max and the site's MaxGrowth"},
      {"no-table", "without a scale table it is not known what more GPUs would bring"},
      {"no-idle", "a companion must fit on idle GPUs of a node, at most one per node"},
      {"no-entry", "only entries of the scale table are taken, and only faster ones"},
      {"not-steady", "a job is left alone while it starts or switches"},
      {"cooldown", "after a switch a job is left alone for CooldownSeconds"},
      {"failure-pause",
       "after a failed switch a job is left alone for RetryAfterFailureSeconds, doubled each time"},
      {"reclaim",
       "a waiting job that fits once expanded GPUs come back gets them, in the order of Victims; "
       "nobody drops below its base"},
      {"not-enough", "where expanded GPUs would not suffice nothing is taken back"},
      {"switch-under-way", "jobs that are switching are asked when they have settled"},
      {"lease-end", "what a pending job or a reservation is planned on is not leased any longer"},
      {"disabled", "where elasticity is switched off every job goes back to its base"},
      {"paused", "no growth between sflex pause and sflex resume"},
      {"left-alone", "after MaxScalingFailures failed switches in a row, until sflex resume"},
      {"switched-off", "no growth where flextrain.conf does not allow it"},
      {"database", "a growth that cannot be recorded is not made"},
      {"watchdog", "no growth while the controller's own rounds or Slurm's answers are late"},
      {"lost-companions", "no growth until the nodes have ended what slurmctld lost"},
  };
  const auto found = kRules.find(rule);
  return found == kRules.end() ? "" : found->second;
}

std::string symbol_text(const Json& row, const std::string& symbol) {
  const bool growth = of_growth(row);
  static const std::map<std::string, std::string> kGrowth = {
      {"held", "GPUs that the job holds"},
      {"base", "GPUs of its base, the guaranteed minimum"},
      {"max", "the most it may hold"},
      {"waiting", "jobs that wait for GPUs"},
      {"other_waiting", "jobs pending for other reasons (held, limits), which do not count"},
      {"idle", "idle GPUs that fit its companions"},
      {"N", "GPUs of the entry chosen"},
      {"v_now", "tokens per second now, by the scale table"},
      {"v_new", "tokens per second of the entry"},
      {"S", "speed-up, v_new / v_now"},
      {"O", "seconds that the switch costs"},
      {"O_measured", "1: measured by the agent, 0: assumed"},
      {"lambda", "arrivals per second that would take the GPUs back: not fitting the margin"},
      {"margin", "GPUs idle after the growth"},
      {"E", "seconds that the growth saves on average"},
      {"O_d", "seconds that the later shrink costs"},
      {"arrivals", "arrivals counted"},
      {"T", "seconds over which they are counted"},
      {"P", "probability that the growth pays"},
      {"P_th", "the threshold, GateProbability"},
      {"R", "seconds that the job still runs at its present speed"},
      {"saved", "seconds saved over the rest of the run"},
      {"since_failure", "seconds since the last failed switch"},
      {"pause", "seconds to wait after it"},
      {"failures", "failed switches in a row"},
      {"since_switch", "seconds since the last switch"},
      {"cooldown", "CooldownSeconds"},
      {"scalings", "its switches within the last hour"},
      {"most_scalings", "MaxScalingsPerHour"},
      {"left", "GPUs that the cap leaves"},
  };
  static const std::map<std::string, std::string> kReclaim = {
      {"N", "GPUs that the waiting job needs"},
      {"n", "on at least so many nodes"},
      {"g", "GPUs per node, 0 = any spread"},
      {"I", "GPUs that are idle for it or coming back"},
      {"F", "GPUs given back"},
      {"E", "expanded GPUs that could be taken back for it"},
      {"S", "gain of the job that gives back: its speed over that of its base"},
      {"held", "GPUs that it held"},
      {"base", "GPUs of its base, the guaranteed minimum"},
      {"busy", "expanded GPUs of jobs that are switching"},
  };
  const auto& table = growth ? kGrowth : kReclaim;
  const auto found = table.find(symbol);
  return found == table.end() ? "" : found->second;
}

std::string symbol_source(const Json& row, const std::string& symbol) {
  static const std::string kBook = "the controller's record of the job";
  static const std::string kTable = "the job's scale table", kCalculated = "calculated";
  static const std::map<std::string, std::string> kGrowth = {
      {"held", kBook},
      {"base", "Slurm"},
      {"max", "--elastic-max and MaxGrowth"},
      {"waiting", "Slurm's queue"},
      {"other_waiting", "Slurm's queue"},
      {"idle", "Slurm's nodes, less what others took in this round"},
      {"N", kTable},
      {"v_now", kTable},
      {"v_new", kTable},
      {"S", kTable},
      {"margin", "Slurm's nodes"},
      {"E", kCalculated},
      {"P", kCalculated},
      {"saved", kCalculated},
      {"O_d", "measured by its agent; before the first shrink, O"},
      {"P_th", "flextrain.conf"},
      {"since_failure", kBook},
      {"failures", kBook},
      {"since_switch", kBook},
      {"scalings", kBook},
      {"pause", "RetryAfterFailureSeconds in flextrain.conf, doubled per failure"},
      {"cooldown", "flextrain.conf"},
      {"most_scalings", "flextrain.conf"},
      {"left", "the cap in flextrain.conf, less what is held"},
  };
  static const std::map<std::string, std::string> kReclaim = {
      {"N", "the waiting job's request"},
      {"n", "the waiting job's request"},
      {"g", "the waiting job's request"},
      {"I", "Slurm's nodes, and companions that leave"},
      {"F", "the controller's record of companions"},
      {"E", "the controller's record of companions"},
      {"busy", "the controller's record of companions"},
      {"S", kTable},
      {"held", kBook},
      {"base", "Slurm"},
  };
  if (of_growth(row)) {
    if (symbol == "lambda" || symbol == "arrivals" || symbol == "T") return rate_source(row);
    if (symbol == "R") return remaining_source(row);
    if (symbol == "O") {
      return double_of(member(row, "inputs"), "O_measured") != 0
                 ? "measured by its agent"
                 : "DefaultOverheadSeconds in flextrain.conf";
    }
  }
  const auto& table = of_growth(row) ? kGrowth : kReclaim;
  const auto found = table.find(symbol);
  return found == table.end() ? "" : found->second;
}

std::string alternative_text(const std::string& refused_by) {
  static const std::map<std::string, std::string> kTexts = {
      {"", "taken"},
      {"at-max", "more than it may hold"},
      {"no-idle", "more than is idle for it"},
      {"user-cap", "more than its user may hold"},
      {"account-cap", "more than its account may hold"},
      {"idle-reserve", "more than IdleReserve leaves"},
      {"slower", "not faster"},
      {"guard", "saves less than the pause costs"},
      {"gate", "not likely enough to pay"},
      {"not-best", "would do, but only the best entry is taken"},
  };
  const auto found = kTexts.find(refused_by);
  return found == kTexts.end() ? printable(refused_by) : found->second;
}

}  // namespace flextrain::cli
