// SPDX-License-Identifier: MIT
#include "cli/explain.h"

#include <cmath>
#include <map>

#include "cli/formula.h"
#include "cli/time_spec.h"
#include "cli/values.h"

namespace flextrain::cli {
namespace {

std::string gpus(int64_t count) { return fmt::format("{} GPU{}", count, count == 1 ? "" : "s"); }

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
  };
  const auto found = kRules.find(rule);
  return found == kRules.end() ? "" : found->second;
}

std::string symbol_text(const std::string& symbol, const std::string& kind) {
  const bool growth = kind == "grow" || kind == "refuse";
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

std::string title(const Json& row) {
  const std::string kind = text_of(row, "kind");
  const int64_t job = int_of(row, "job_id"), for_job = int_of(row, "for_job");
  const int64_t from = int_of(row, "from_gpus"), to = int_of(row, "to_gpus");
  const std::string user = printable(text_of(row, "user"));
  const std::string owner = user.empty() ? "" : " of " + user;
  if (kind == "grow")
    return fmt::format("job {}{} grows from {} to {}", job, owner, from, gpus(to));
  if (kind == "shrink")
    return fmt::format("job {}{} gives GPUs back for job {}: from {} to {}", job, owner, for_job,
                       from, gpus(to));
  if (kind == "abort") return fmt::format("nothing is taken back for waiting job {}", for_job);
  if (kind == "pause" || kind == "resume")
    return job == 0 ? fmt::format("{} all jobs", kind)
                    : fmt::format("{} job {}{}", kind, job, owner);
  if (to > from)
    return fmt::format("job {}{} does not grow from {} to {}", job, owner, from, gpus(to));
  return fmt::format("job {}{} does not grow, it stays at {}", job, owner, gpus(from));
}

std::map<std::string, double> inputs_of(const Json& row) {
  std::map<std::string, double> inputs;
  const Json& json = member(row, "inputs");
  if (json.is_object())
    for (const auto& [symbol, value] : json.items())
      if (value.is_number()) inputs[symbol] = value.get<double>();
  return inputs;
}

std::string formula_part(const Json& row, const std::map<std::string, double>& inputs) {
  const std::string formula = text_of(row, "formula");
  if (formula.empty()) return "";
  std::string out = "\nFormula\n";
  const Result<std::vector<EvaluatedClause>> clauses = evaluate_formula(formula, inputs);
  if (!clauses.ok()) return out + fmt::format("  {}\n", printable(formula));
  for (const EvaluatedClause& clause : *clauses)
    out += fmt::format("  {}\n  {}    {}\n", printable(clause.text), printable(clause.numbers),
                       clause.holds ? "which is so" : "which is NOT so");
  return out;
}

std::string inputs_part(const Json& row, const std::map<std::string, double>& inputs) {
  if (inputs.empty()) return "";
  size_t width = 0;
  for (const auto& [symbol, value] : inputs) width = std::max(width, symbol.size());
  std::string out = "\nInputs\n";
  for (const auto& [symbol, value] : inputs) {
    std::string line =
        fmt::format("  {:<{}}  {:>12}  {}", printable(symbol), width, number_text(value, 6),
                    symbol_text(symbol, text_of(row, "kind")));
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  }
  return out;
}

std::string action_part(const Json& row) {
  const std::string kind = text_of(row, "kind");
  const int64_t from = int_of(row, "from_gpus"), to = int_of(row, "to_gpus");
  std::string out = "\nTherefore\n";
  if (kind == "pause")
    return out + "  No growth until resumed; what is held is kept until others need it.\n";
  if (kind == "resume") return out + "  Growth is decided by the rules again.\n";
  if (kind == "refuse")
    return out + (to > from ? fmt::format("  The growth to {} is refused; the job stays at {}.\n",
                                          gpus(to), gpus(from))
                            : fmt::format("  The job stays at {}.\n", gpus(from)));
  if (kind == "abort")
    return out + fmt::format("  No elastic job is touched; job {} keeps its place in the queue.\n",
                             int_of(row, "for_job"));
  std::string list;
  if (kind == "grow") {
    const Json& take = member(row, "take");
    if (take.is_array())
      for (const Json& offer : take)
        list += fmt::format("{}{} on {}", list.empty() ? "" : ", ", int_of(offer, "gpus"),
                            printable(text_of(offer, "node")));
    return out +
           fmt::format("  Companions are submitted for {} more: {}.\n", gpus(to - from), list);
  }
  const Json& give_back = member(row, "give_back");
  if (give_back.is_array())
    for (const Json& id : give_back)
      if (id.is_number_integer())
        list += fmt::format("{}{}", list.empty() ? "" : ", ", id.get<int64_t>());
  return out + fmt::format("  The trainer leaves {}; then the companions are cancelled: {}.\n",
                           gpus(from - to), list);
}

std::string outcome_part(const Json& row) {
  const Json& scaling = member(row, "scaling");
  if (!scaling.is_object()) {
    return text_of(row, "outcome") == "open" ? "\nWhat came of it\n  The switch is under way.\n"
                                             : "";
  }
  const std::string outcome = text_of(scaling, "outcome");
  std::string out = fmt::format(
      "\nWhat came of it\n  {} at {}, {} s after the decision was acted upon\n",
      printable(outcome.empty() ? "unknown" : outcome), format_time(int_of(scaling, "end")),
      int_of(scaling, "end") - int_of(scaling, "begin"));
  if (const std::string reason = text_of(scaling, "reason"); !reason.empty())
    out += fmt::format("  {}\n", printable(reason));
  const Json& phases = member(scaling, "phases");
  std::string list;
  for (const char* phase : {"companions", "save", "stop", "launch", "load", "first_step"}) {
    const double value = double_of(phases, phase);
    if (value > 0) list += fmt::format("{}{} {:.2f}", list.empty() ? "" : ", ", phase, value);
  }
  const double total = double_of(phases, "total");
  if (!list.empty()) out += fmt::format("  Seconds: {}\n", list);
  if (total > 0) out += fmt::format("  The trainer stood still for {:.2f} s\n", total);
  return out;
}

}  // namespace

std::string explain_decision(const Json& row) {
  const std::map<std::string, double> inputs = inputs_of(row);
  const int64_t repeats = int_of(row, "repeats");
  std::string out = fmt::format("Decision {}: {}\n", int_of(row, "id"), title(row));
  out += repeats > 1 ? fmt::format("  {} times from {} to {}; the numbers are the last ones\n",
                                   repeats, format_time(int_of(row, "first_time")),
                                   format_time(int_of(row, "last_time")))
                     : fmt::format("  at {}\n", format_time(int_of(row, "last_time")));
  out += fmt::format("\nReason\n  {}\n", printable(text_of(row, "reason")));
  const std::string rule = text_of(row, "rule");
  const std::string meaning = rule_text(rule);
  out += fmt::format("\nRule\n  {}{}{}\n", printable(rule), meaning.empty() ? "" : ": ", meaning);
  out += formula_part(row, inputs);
  out += inputs_part(row, inputs);
  out += action_part(row);
  out += outcome_part(row);
  return out;
}

}  // namespace flextrain::cli
