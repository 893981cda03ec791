// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm_plugin/controller/snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>

#include "slurm_plugin/controller/waiting.h"

namespace flextrain::slurm_plugin {
namespace {

void add(NodeAmounts& amounts, const ManagedJob& job, const Companion& companion) {
  const int base_gpus = std::max(1, job.row.base_gpus);
  int cpus = 0;
  for (const auto& [node, count] : job.record.cpus_on_node) cpus += count;
  NodeAmount& amount = amounts[companion.row.node];
  amount.gpus += companion.row.gpus;
  amount.cpus += static_cast<int>(
      std::max<int64_t>(1, static_cast<int64_t>(cpus) * companion.row.gpus / base_gpus));
  if (job.record.memory_per_node_mib > 0 && !job.record.nodes.empty()) {
    amount.memory_mib += job.record.memory_per_node_mib *
                         static_cast<int64_t>(job.record.nodes.size()) * companion.row.gpus /
                         base_gpus;
  }
}

// Idle nodes for companions, made once per kind of needs.
class CompanionOffers {
 public:
  CompanionOffers(const ClusterView& view, const ControllerConfig& config, const InFlight& moving)
      : view_(view), config_(config), moving_(moving), planned_(planned_starts(view)) {}

  policy::SharedList<policy::NodeOffer> of(const JobRecord& base) {
    const NodeNeeds needs = needs_of_base(base, config_);
    const auto known = offers_.find(needs);
    if (known != offers_.end()) return known->second;
    return offers_.emplace(needs, companion_offers(view_, needs, config_, moving_.taken, planned_))
        .first->second;
  }

 private:
  const ClusterView& view_;
  const ControllerConfig& config_;
  const InFlight& moving_;
  const std::map<std::string, int64_t> planned_;
  std::map<NodeNeeds, policy::SharedList<policy::NodeOffer>> offers_;
};

policy::ElasticJobView view_of(const ManagedJob& job, const ClusterView& cluster,
                               CompanionOffers& offers, const ControllerConfig& config) {
  policy::ElasticJobView view;
  view.job_id = job.row.key.job_id;
  view.user = job.row.user;
  view.account = job.row.account;
  view.start_time = job.row.start_time;
  view.not_steady_reason = not_steady_reason(job);
  view.steady = view.not_steady_reason.empty();
  view.base_gpus = job.row.base_gpus;
  view.held_gpus = job.held_gpus();
  view.max_gpus = job.row.max_gpus;
  view.table = job.table.entries;
  const Remaining remaining = remaining_time(job, cluster.now);
  view.remaining_seconds = remaining.seconds;
  view.remaining_source = remaining.source;
  view.saving = job.progress && job.progress->state == protocol::kTrainerSaving;
  view.scalings_last_hour = job.scalings_since(cluster.now - 3600);
  view.grow_overhead_seconds = job.row.grow_overhead_seconds;
  view.shrink_overhead_seconds = job.row.shrink_overhead_seconds;
  view.last_switch_time = job.row.last_switch_time;
  view.last_failure_time = job.row.last_failure_time;
  view.failures = job.row.failures;
  view.hold_rule = job.hold.rule;
  view.hold_reason = job.hold.reason;
  std::set<std::string> occupied;
  const std::set<uint32_t> given_back = job.given_back();
  for (const auto& [id, companion] : job.companions) {
    occupied.insert(companion.row.node);
    const bool goes = companion.leaving() || given_back.contains(id);
    if (goes ? companion.started : job.uses(id)) {
      view.companions.push_back({id, companion.row.node, companion.row.gpus, goes});
    } else if (!goes) {
      view.pending_gpus += companion.row.gpus;
    }
  }
  if (view.steady && view.held_gpus < view.max_gpus) {
    view.offers = offers.of(job.record);
    view.own_nodes = own_nodes(job.record, config, std::move(occupied));
  }
  return view;
}

}  // namespace

InFlight in_flight(const ManagedJobs& jobs) {
  InFlight result;
  for (const auto& job : jobs) {
    for (const auto& [id, companion] : job->companions) {
      // Of a run that goes on the policy sees its leaving companions itself.
      if (companion.started && finished(job->state)) add(result.promised, *job, companion);
      if (!companion.started && !companion.leaving()) add(result.taken, *job, companion);
    }
  }
  return result;
}

std::string not_steady_reason(const ManagedJob& job) {
  if (job.state != ElasticState::kSteady) {
    return job.state == ElasticState::kStarting
               ? "its agent has not registered"
               : fmt::format("it is {}", elastic_state_name(job.state));
  }
  if (job.record.state != JobState::kRunning) return "the base job does not run";
  if (!job.row.registered) return "its agent has not registered";
  if (job.registration.numerics == "exact" && job.row.fingerprint.empty()) {
    return "its numerics fingerprint is not known yet";
  }
  if (job.size_mismatch_since != 0) return "the trainer reports another size";
  return "";
}

Remaining remaining_time(const ManagedJob& job, int64_t now) {
  std::optional<double> left;
  std::string source;
  if (job.progress && job.progress->total_steps > 0 && job.progress->step_seconds > 0) {
    const auto steps =
        static_cast<double>(std::max<int64_t>(0, job.progress->total_steps - job.progress->step));
    left = std::max(0.0, steps * job.progress->step_seconds -
                             static_cast<double>(std::max<int64_t>(0, now - job.progress->time)));
    source = "progress";
  }
  if (job.record.time_limit_seconds > 0 && job.record.end_time > now) {
    const auto limit = static_cast<double>(job.record.end_time - now);
    if (!left || limit < *left) {
      left = limit;
      source = "limit";
    }
  }
  return {left, source};
}

policy::Snapshot build_snapshot(const ClusterView& view, const ManagedJobs& jobs,
                                const ControllerConfig& config) {
  policy::Snapshot snapshot;
  snapshot.now = view.now;
  snapshot.local_offset_seconds = local_offset_seconds(view.now);
  const InFlight moving = in_flight(jobs);
  CompanionOffers offers(view, config, moving);
  for (const auto& job : jobs) {
    if (finished(job->state)) continue;
    snapshot.elastic.push_back(view_of(*job, view, offers, config));
  }
  std::sort(snapshot.elastic.begin(), snapshot.elastic.end(),
            [](const auto& a, const auto& b) { return a.job_id < b.job_id; });
  WaitingView queue = waiting_view(view, moving.taken, moving.promised,
                                   static_cast<size_t>(config.policy.queue_depth));
  snapshot.waiting = std::move(queue.waiting);
  snapshot.more_waiting = queue.more_waiting;
  snapshot.other_waiting_gpu_jobs = queue.other_waiting_gpu_jobs;
  for (const NodeRecord& node : view.nodes) {
    snapshot.total_gpus += node.gpus;
    if (!node.usable) continue;
    const auto claim = moving.taken.find(node.name);
    const int claimed = claim == moving.taken.end() ? 0 : claim->second.gpus;
    snapshot.idle_gpus += std::max(0, node.gpus - node.gpus_allocated - claimed);
  }
  return snapshot;
}

int64_t local_offset_seconds(int64_t now) {
  const std::time_t time = now;
  std::tm local{};
  localtime_r(&time, &local);
  return local.tm_gmtoff;
}

Json offers_to_json(const std::vector<policy::NodeOffer>& offers) {
  Json json = Json::array();
  for (const policy::NodeOffer& offer : offers) {
    json.push_back({{"node", offer.node}, {"gpus", offer.gpus}});
  }
  return json;
}

std::vector<policy::NodeOffer> offers_from_json(const Json& json) {
  auto offers = decode_json("offers", [&] {
    std::vector<policy::NodeOffer> list;
    for (const Json& offer : json) {
      list.push_back({offer.at("node").get<std::string>(), offer.at("gpus").get<int>()});
    }
    return list;
  });
  return std::move(offers).value_or({});
}

store::DecisionRow decision_row(const policy::Decision& decision, const ManagedJob* job,
                                int64_t now) {
  store::DecisionRow row;
  if (job != nullptr) {
    row.job = job->row.key;
    row.user = job->row.user;
  }
  row.for_job = decision.for_job;
  row.kind = policy::decision_kind_name(decision.kind);
  row.rule = decision.rule;
  row.reason = decision.reason;
  row.formula = decision.formula;
  row.from_gpus = decision.from_gpus;
  row.to_gpus = decision.to_gpus;
  row.inputs = decision.inputs;
  row.take = offers_to_json(decision.take);
  row.give_back = decision.give_back;
  row.first_time = row.last_time = now;
  return row;
}

}  // namespace flextrain::slurm_plugin
