// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm_plugin/controller/weighed.h"

#include "policy/alternatives.h"
#include "policy/snapshot_json.h"

namespace flextrain::slurm_plugin {
namespace {

Json entries_json(const policy::StoredSnapshot& stored, uint32_t job_id) {
  Json list = Json::array();
  for (const policy::EntryAlternative& alternative :
       policy::entry_alternatives(stored.snapshot, stored.parameters, job_id)) {
    Json entry = {{"gpus", alternative.entry.gpus},
                  {"tokens_per_second", alternative.entry.tokens_per_second},
                  {"speedup", alternative.speedup},
                  {"refused_by", alternative.refused_by}};
    if (alternative.weighed) {
      entry["saved"] = alternative.saved;
      entry["lambda"] = alternative.lambda;
      entry["value"] = alternative.value;
    }
    list.push_back(std::move(entry));
  }
  return list;
}

Json victims_json(const policy::StoredSnapshot& stored, uint32_t for_job) {
  Json list = Json::array();
  for (const policy::VictimAlternative& alternative :
       policy::victim_alternatives(stored.snapshot, stored.parameters, for_job)) {
    list.push_back({{"job_id", alternative.job_id},
                    {"expanded", alternative.expanded},
                    {"spared", alternative.spared},
                    {"switching", alternative.switching},
                    {"gives", alternative.gives}});
  }
  return list;
}

}  // namespace

Json weighed_json(const store::DecisionRow& row, const Json& snapshot, bool admin) {
  const bool growth = row.kind == "grow" || row.kind == "refuse";
  // A job's companions whose lease ends, or all where elasticity is off: nothing was weighed.
  const bool reclaim = (row.kind == "shrink" && row.rule == "reclaim") || row.kind == "abort";
  if (!growth && !reclaim) return Json::object();
  const auto stored = policy::snapshot_from_json(snapshot);
  if (!stored.ok()) return Json::object();
  Json weighed = Json::object();
  weighed["gate"] = policy::gate_name(stored->parameters.gate);
  weighed["forecast"] = policy::forecast_name(stored->parameters.forecast);
  if (growth) {
    for (const policy::ElasticJobView& job : stored->snapshot.elastic) {
      if (job.job_id != row.job.job_id) continue;
      weighed["remaining_source"] = job.remaining_seconds ? job.remaining_source : "age";
    }
    weighed["entries"] = entries_json(*stored, row.job.job_id);
  } else if (admin) {
    weighed["victims"] = victims_json(*stored, row.for_job);
  }
  return weighed;
}

}  // namespace flextrain::slurm_plugin
