// SPDX-License-Identifier: MIT
#include "policy/alternatives.h"

#include <algorithm>
#include <set>

#include "policy/probes.h"
#include "policy/throughput.h"

namespace flextrain::policy {
namespace {

std::string cap_name(GrowthRule rule) {
  return rule == GrowthRule::kUserCap      ? "user-cap"
         : rule == GrowthRule::kAccountCap ? "account-cap"
                                           : "idle-reserve";
}

// Whether `rule` refused the job whatever the entry.
bool before_any_entry(GrowthRule rule) {
  switch (rule) {
    case GrowthRule::kNotSteady:
    case GrowthRule::kAtMax:
    case GrowthRule::kNoTable:
    case GrowthRule::kQuietHours:
    case GrowthRule::kQueueNotEmpty:
    case GrowthRule::kFailurePause:
    case GrowthRule::kCooldown:
    case GrowthRule::kScalingsPerHour:
      return true;
    default:
      return false;
  }
}

std::vector<EntryAlternative> weigh_entries(const Snapshot& snapshot, const Parameters& parameters,
                                            const PoolFacts& pool, const JobFacts& job) {
  std::vector<EntryAlternative> alternatives;
  const RateAt rate = [&](int margin) { return snapshot.forecast.rate(margin); };
  const GrowthVerdict whole = judge_growth(parameters, pool, job, rate);
  if (before_any_entry(whole.rule)) return alternatives;
  const double now = tokens_per_second(*job.table, job.held_gpus);
  std::vector<TableEntry> alone = {{job.held_gpus, now}};  // and one entry above
  alone.emplace_back();
  JobFacts facts = job;
  facts.table = &alone;
  for (const TableEntry& entry : *job.table) {
    if (entry.gpus <= job.held_gpus) continue;
    EntryAlternative alternative;
    alternative.entry = entry;
    alternative.speedup = now > 0 ? entry.tokens_per_second / now : 0;
    const int more = entry.gpus - job.held_gpus;
    if (entry.gpus > whole.cap) {
      alternative.refused_by = "at-max";
    } else if (more > job.fitting_gpus) {
      alternative.refused_by = "no-idle";
    } else if (more > job.allowed_gpus) {
      alternative.refused_by = cap_name(job.allowed_by);
    } else if (alternative.speedup <= 1) {
      alternative.refused_by = "slower";
    } else {
      alone.back() = entry;
      const GrowthVerdict verdict = judge_growth(parameters, pool, facts, rate);
      alternative.weighed = true;
      alternative.saved = verdict.saved;
      alternative.lambda = verdict.lambda;
      alternative.value = verdict.value;
      alternative.refused_by = verdict.rule == GrowthRule::kGuard  ? "guard"
                               : verdict.rule == GrowthRule::kGate ? "gate"
                               : whole.rule == GrowthRule::kGrow && whole.entry->gpus == entry.gpus
                                   ? ""
                                   : "not-best";
    }
    alternatives.push_back(std::move(alternative));
  }
  return alternatives;
}

}  // namespace

std::vector<EntryAlternative> entry_alternatives(const Snapshot& snapshot,
                                                 const Parameters& parameters, uint32_t job_id) {
  std::vector<EntryAlternative> alternatives;
  Probes probes;
  probes.growth = [&](const ElasticJobView& job, const PoolFacts& pool, const JobFacts& facts) {
    if (job.job_id == job_id) alternatives = weigh_entries(snapshot, parameters, pool, facts);
  };
  decide_probed(snapshot, parameters, probes);
  return alternatives;
}

std::vector<VictimAlternative> victim_alternatives(const Snapshot& snapshot,
                                                   const Parameters& parameters, uint32_t for_job) {
  std::vector<VictimAlternative> alternatives;
  Probes probes;
  probes.reclaim = [&](const WaitingJob& waiting, const std::vector<VictimFacts>& facts,
                       const std::vector<size_t>& order) {
    if (waiting.job_id != for_job) return;
    for (const size_t at : order) {
      if (facts[at].expanded > 0)
        alternatives.push_back({facts[at].id, facts[at].expanded, facts[at].spared, false, 0});
    }
    const std::set<std::string> usable(waiting.usable_nodes.begin(), waiting.usable_nodes.end());
    for (const ElasticJobView& job : snapshot.elastic) {
      if (job.steady) continue;
      int held = 0;
      for (const CompanionView& companion : job.companions)
        if (!companion.leaving && usable.contains(companion.node)) held += companion.gpus;
      if (held > 0) alternatives.push_back({job.job_id, held, false, true, 0});
    }
  };
  for (const Decision& decision : decide_probed(snapshot, parameters, probes)) {
    if (decision.kind != DecisionKind::kShrink || decision.for_job != for_job) continue;
    for (VictimAlternative& alternative : alternatives)
      if (alternative.job_id == decision.job_id)
        alternative.gives = decision.from_gpus - decision.to_gpus;
  }
  return alternatives;
}

}  // namespace flextrain::policy
