// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm_plugin/controller/waiting.h"

#include <algorithm>

#include "base/text.h"
#include "protocol/elastic_request.h"
#include "slurm_plugin/cluster/gres_text.h"
#include "slurm_plugin/controller/node_list.h"

namespace flextrain::slurm_plugin {
namespace {

int partition_tier(const ClusterView& view, const JobRecord& job) {
  int tier = 0;
  for (const std::string& name : split(job.partition, ',')) {
    for (const PartitionRecord& partition : view.partitions) {
      if (partition.name == name) tier = std::max(tier, partition.priority_tier);
    }
  }
  return tier;
}

// Shared by all waiting jobs with the same needs.
struct NodesForQueue {
  policy::SharedList<policy::NodeOffer> offers;
  policy::SharedList<std::string> usable;
};

NodesForQueue nodes_for(const ClusterView& view, const NodeNeeds& needs, const NodeAmounts& taken,
                        const NodeAmounts& promised) {
  std::vector<policy::NodeOffer> offers;
  std::vector<std::string> usable;
  for (const NodeRecord& node : view.nodes) {
    if (!(node.usable || node.planned) || !node_matches(node, needs)) continue;
    if (blocked_by_reservation(view, node.name, needs.reservation, view.now + 1)) continue;
    usable.push_back(node.name);
    NodeAmount used;
    if (const auto claim = taken.find(node.name); claim != taken.end()) used = claim->second;
    if (const auto back = promised.find(node.name); back != promised.end()) {
      used.gpus -= back->second.gpus;
      used.cpus -= back->second.cpus;
      used.memory_mib -= back->second.memory_mib;
    }
    const int gpus = free_gpus(node, needs, used);
    if (gpus > 0) offers.push_back({node.name, gpus});
  }
  return {std::move(offers), std::move(usable)};
}

struct Pending {
  const JobRecord* job;
  int tier;
};

// The first `depth` in Slurm's order among pending jobs: partition tier, priority, then age
// (slurm.conf(5)). Of a long queue only these are put in order.
void keep_first(std::vector<Pending>& jobs, size_t depth) {
  const auto before = [](const Pending& a, const Pending& b) {
    if (a.tier != b.tier) return a.tier > b.tier;
    if (a.job->priority != b.job->priority) return a.job->priority > b.job->priority;
    if (a.job->submit_time != b.job->submit_time) return a.job->submit_time < b.job->submit_time;
    return a.job->job_id < b.job->job_id;
  };
  if (jobs.size() > depth) {
    std::nth_element(jobs.begin(), jobs.begin() + static_cast<std::ptrdiff_t>(depth), jobs.end(),
                     before);
    jobs.resize(depth);
  }
  std::sort(jobs.begin(), jobs.end(), before);
}

}  // namespace

WaitKind classify_waiting(const JobRecord& job, int64_t now) {
  if (job.state != JobState::kPending || job.gpus_requested <= 0) return WaitKind::kNone;
  if (protocol::companion_from_comment(job.admin_comment)) return WaitKind::kNone;
  if (job.held || job.eligible_time == 0 || job.eligible_time > now) return WaitKind::kOther;
  // "None": submitted a moment ago, the scheduler has not looked yet.
  const std::string reason = to_lower(job.state_reason);
  const bool gpus_alone =
      reason.empty() || reason == "none" || reason == "resources" || reason == "priority";
  return gpus_alone ? WaitKind::kGpus : WaitKind::kOther;
}

WaitingView waiting_view(const ClusterView& view, const NodeAmounts& taken,
                         const NodeAmounts& promised, size_t depth) {
  WaitingView result;
  std::vector<Pending> pending;
  std::map<std::string_view, int> tiers;  // by the text that names the partitions
  for (const JobRecord& job : view.jobs) {
    const WaitKind kind = classify_waiting(job, view.now);
    if (kind == WaitKind::kOther) ++result.other_waiting_gpu_jobs;
    if (kind != WaitKind::kGpus) continue;
    auto tier = tiers.find(job.partition);
    if (tier == tiers.end()) tier = tiers.emplace(job.partition, partition_tier(view, job)).first;
    pending.push_back({&job, tier->second});
  }
  if (pending.size() > depth) result.more_waiting = static_cast<int>(pending.size() - depth);
  keep_first(pending, depth);
  std::map<NodeNeeds, NodesForQueue> known;
  for (const auto& [job, tier] : pending) {
    policy::WaitingJob waiting;
    waiting.job_id = job->job_id;
    waiting.submit_time = job->submit_time;
    waiting.nodes = std::max(1, job->nodes_requested);
    waiting.gpus = job->gpus_requested;
    waiting.gpus_per_node = gpus_in(job->tres_per_node).count;
    const NodeNeeds needs = needs_of_waiting(*job);
    auto nodes = known.find(needs);
    if (nodes == known.end()) {
      nodes = known.emplace(needs, nodes_for(view, needs, taken, promised)).first;
    }
    waiting.offers = nodes->second.offers;
    waiting.usable_nodes = nodes->second.usable;
    result.waiting.push_back(std::move(waiting));
  }
  return result;
}

std::map<std::string, int64_t> planned_starts(const ClusterView& view) {
  std::map<std::string, int64_t> starts;
  for (const JobRecord& job : view.jobs) {
    if (job.state != JobState::kPending || job.start_time <= view.now) continue;
    if (protocol::companion_from_comment(job.admin_comment)) continue;
    const auto nodes = expand_host_list(job.planned_nodes);
    if (!nodes.ok()) continue;
    for (const std::string& node : *nodes) {
      const auto [at, inserted] = starts.emplace(node, job.start_time);
      if (!inserted) at->second = std::min(at->second, job.start_time);
    }
  }
  return starts;
}

}  // namespace flextrain::slurm_plugin
