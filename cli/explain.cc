// SPDX-License-Identifier: MIT
#include "cli/explain.h"

#include <cmath>
#include <map>

#include "cli/explain_words.h"
#include "cli/formula.h"
#include "cli/time_spec.h"
#include "cli/values.h"

namespace flextrain::cli {
namespace {

std::string gpus(int64_t count) { return fmt::format("{} GPU{}", count, count == 1 ? "" : "s"); }

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
    const std::string meaning = symbol_text(row, symbol), source = symbol_source(row, symbol);
    std::string line = fmt::format("  {:<{}}  {:>12}  {}", printable(symbol), width,
                                   number_text(value, 6), meaning);
    if (!source.empty()) line += fmt::format("{}[{}]", meaning.empty() ? "" : " ", source);
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  }
  return out;
}

// What else could have been: entries of the scale table, or jobs that could give GPUs back.
std::string alternatives_part(const Json& row) {
  const Json &entries = member(row, "entries"), &victims = member(row, "victims");
  std::string out;
  if (entries.is_array() && !entries.empty()) {
    const bool net = text_of(row, "gate") == "net-benefit";
    const bool gated = text_of(row, "gate") != "none";
    const std::string value = !gated ? "" : net ? "E, s" : "P";
    out += fmt::format("\nAlternatives\n  {:>5}  {:>10}  {:>7}  {:>10}  {:>10}  {}\n", "GPUs",
                       "Tokens/s", "Speedup", "Saved, s", value, "Outcome");
    for (const Json& entry : entries) {
      const bool weighed = member(entry, "saved").is_number();
      std::string line = fmt::format(
          "  {:>5}  {:>10}  {:>6.2f}x  {:>10}  {:>10}  {}", int_of(entry, "gpus"),
          number_text(double_of(entry, "tokens_per_second"), 6), double_of(entry, "speedup"),
          weighed ? number_text(double_of(entry, "saved"), 6) : "-",
          weighed && gated ? number_text(double_of(entry, "value"), 4)
          : gated          ? "-"
                           : "",
          alternative_text(text_of(entry, "refused_by")));
      out += line + '\n';
    }
    out += "  by the scale table (`sflex table`), each weighed alone with the numbers above\n";
  }
  if (victims.is_array() && !victims.empty()) {
    out += fmt::format("\nAlternatives\n  {:>8}  {:>8}  {:>6}  {}\n", "JobID", "Expanded", "Gives",
                       "Outcome");
    for (const Json& victim : victims) {
      const bool spared = member(victim, "spared") == true;
      const int64_t gives = int_of(victim, "gives");
      out += fmt::format("  {:>8}  {:>8}  {:>6}  {}\n", int_of(victim, "job_id"),
                         int_of(victim, "expanded"), gives,
                         member(victim, "switching") == true ? "is switching: not asked"
                         : gives > 0                         ? "gives back"
                         : spared                            ? "spared: about to end, or in a save"
                                                             : "not needed, or not enough");
    }
    out += "  in the order in which they are asked; GPUs on nodes that the waiting job can use\n";
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
  out += repeats > 1 ? fmt::format("  {} times from {} to {}; the numbers are of the last minute\n",
                                   repeats, format_time(int_of(row, "first_time")),
                                   format_time(int_of(row, "last_time")))
                     : fmt::format("  at {}\n", format_time(int_of(row, "last_time")));
  out += fmt::format("\nReason\n  {}\n", printable(text_of(row, "reason")));
  const std::string rule = text_of(row, "rule");
  const std::string meaning = rule_text(rule);
  out += fmt::format("\nRule\n  {}{}{}\n", printable(rule), meaning.empty() ? "" : ": ", meaning);
  out += formula_part(row, inputs);
  out += inputs_part(row, inputs);
  out += alternatives_part(row);
  out += action_part(row);
  out += outcome_part(row);
  return out;
}

}  // namespace flextrain::cli
