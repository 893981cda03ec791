// SPDX-License-Identifier: MIT
#include "cli/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "cli/values.h"
#include "policy/snapshot_json.h"

namespace flextrain::cli {
namespace {

// Decisions that are made outside of the policy.
bool of_policy(const std::string& kind, const std::string& rule) {
  static const std::set<std::string> kOthers = {"lease-end", "disabled"};
  return kind != "pause" && kind != "resume" && kOthers.count(rule) == 0;
}

Json take_json(const policy::Decision& decision) {
  Json list = Json::array();
  for (const policy::NodeOffer& offer : decision.take)
    list.push_back({{"node", offer.node}, {"gpus", offer.gpus}});
  return list;
}

std::string shown(const Json& value) {
  return printable(value.is_string() ? value.get<std::string>() : value.dump());
}

}  // namespace

Result<Replayed> replay_decision(const Json& row) {
  const std::string kind = text_of(row, "kind"), rule = text_of(row, "rule");
  if (!of_policy(kind, rule))
    return failed_precondition("decision {} ({}, {}) was not made by the policy", int_of(row, "id"),
                               printable(kind), printable(rule));
  const Json& json = member(row, "snapshot");
  if (json.is_null())
    return failed_precondition(
        "the snapshot is not shown: only root and SlurmUser see everybody's jobs");
  const Result<policy::StoredSnapshot> stored = policy::snapshot_from_json(json);
  if (!stored.ok())
    return failed_precondition("the snapshot was stored by another release: {}",
                               stored.status().message());
  const auto decisions = policy::decide(stored->snapshot, stored->parameters);
  const auto job = static_cast<uint32_t>(int_of(row, "job_id"));
  const auto for_job = static_cast<uint32_t>(int_of(row, "for_job"));
  const auto again =
      std::find_if(decisions.begin(), decisions.end(), [&](const policy::Decision& decision) {
        return job != 0 ? decision.job_id == job
                        : decision.job_id == 0 && decision.for_job == for_job;
      });
  Replayed replayed;
  replayed.text = fmt::format("\nReplay\n  {} elastic and {} waiting jobs, {} of {} GPUs idle\n",
                              stored->snapshot.elastic.size(), stored->snapshot.waiting.size(),
                              stored->snapshot.idle_gpus, stored->snapshot.total_gpus);
  if (again == decisions.end()) {
    replayed.text += "  the policy of this release decides nothing for it\n";
    return replayed;
  }
  const Json now = {{"kind", policy::decision_kind_name(again->kind)},
                    {"for_job", again->for_job},
                    {"from_gpus", again->from_gpus},
                    {"to_gpus", again->to_gpus},
                    {"rule", again->rule},
                    {"reason", again->reason},
                    {"formula", again->formula},
                    {"inputs", again->inputs},
                    {"take", take_json(*again)},
                    {"give_back", again->give_back}};
  std::string differences;
  for (const auto& [name, value] : now.items())
    if (const Json& before = member(row, name); before != value)
      differences += fmt::format("  {}: stored {}, now {}\n", name, shown(before), shown(value));
  replayed.same = differences.empty();
  replayed.text += replayed.same
                       ? "  the policy decides the same again, number by number\n"
                       : "  the policy of this release decides otherwise:\n" + differences;
  return replayed;
}

}  // namespace flextrain::cli
