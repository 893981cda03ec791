// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm_plugin/cluster/fake_cluster.h"

#include <algorithm>

#include "protocol/elastic_request.h"

namespace flextrain::slurm_plugin {
namespace {

bool is_companion(const JobRecord& job) {
  return protocol::companion_from_comment(job.admin_comment).has_value();
}

bool holds_resources(const JobRecord& job) {
  return job.state == JobState::kRunning || job.state == JobState::kSuspended ||
         job.state == JobState::kCompleting;
}

}  // namespace

void FakeCluster::called(const char* call) {
  if (on_call) on_call(call);
}

void FakeCluster::add_partition(const std::string& name) {
  std::lock_guard lock(mutex_);
  partitions_.push_back({.name = name, .up = true, .nodes = {}});
}

NodeRecord& FakeCluster::add_node(const std::string& name, int gpus, int cpus, int64_t memory_mib) {
  std::lock_guard lock(mutex_);
  auto record = std::make_unique<NodeRecord>();
  record->name = name;
  record->usable = true;
  record->state = "IDLE";
  record->gpus = gpus;
  record->cpus = cpus;
  record->memory_mib = memory_mib;
  for (PartitionRecord& partition : partitions_) {
    partition.nodes.push_back(name);
    record->partitions.push_back(partition.name);
  }
  nodes_.push_back(std::move(record));
  return *nodes_.back();
}

uint32_t FakeCluster::submit(JobRecord record) {
  std::lock_guard lock(mutex_);
  record.job_id = next_id_++;
  record.submit_time = record.eligible_time = now_;
  record.state = JobState::kPending;
  record.state_reason = "None";
  if (record.nodes_requested == 0) record.nodes_requested = 1;
  const uint32_t id = record.job_id;
  jobs_[id] = std::move(record);
  schedule();
  return id;
}

void FakeCluster::advance(int64_t seconds) {
  std::lock_guard lock(mutex_);
  for (int64_t second = 0; second < seconds; ++second) {
    ++now_;
    for (auto& [id, job] : jobs_) {
      if (job.state == JobState::kRunning && job.end_time > 0 && job.end_time <= now_) end(job, 0);
      if (job.state == JobState::kCompleting && completing_until_[id] <= now_) release(job);
    }
    schedule();
  }
}

void FakeCluster::set_clock(int64_t by) {
  std::lock_guard lock(mutex_);
  now_ += by;
}

void FakeCluster::purge() {
  std::lock_guard lock(mutex_);
  std::erase_if(jobs_, [](const auto& entry) { return entry.second.state == JobState::kEnded; });
  completing_until_.clear();
  requests_.clear();
  cancelled_.clear();
}

void FakeCluster::finish(uint32_t job_id, int exit_code) {
  std::lock_guard lock(mutex_);
  end(jobs_.at(job_id), exit_code);
  schedule();
}

void FakeCluster::requeue(uint32_t job_id) {
  std::lock_guard lock(mutex_);
  JobRecord& job = jobs_.at(job_id);
  release(job);
  job.state = JobState::kPending;
  job.restart_count += 1;
  job.submit_time = now_;
  job.start_time = job.end_time = 0;
  schedule();
}

void FakeCluster::forget(uint32_t job_id) {
  std::lock_guard lock(mutex_);
  release(jobs_.at(job_id));
  jobs_.erase(job_id);
}

void FakeCluster::suspend(uint32_t job_id, bool stop) {
  std::lock_guard lock(mutex_);
  jobs_.at(job_id).state = stop ? JobState::kSuspended : JobState::kRunning;
}

void FakeCluster::fail_node(const std::string& name) {
  std::lock_guard lock(mutex_);
  NodeRecord* failed = node(name);
  failed->usable = false;
  failed->state = "DOWN";
  for (auto& [id, job] : jobs_) {
    if (holds_resources(job) && job.gpus_on_node.contains(name)) {
      job.exit_code = 1;
      release(job);
    }
  }
  schedule();
}

void FakeCluster::return_node(const std::string& name) {
  std::lock_guard lock(mutex_);
  node(name)->usable = true;
  node(name)->state = "IDLE";
  schedule();
}

void FakeCluster::remove_node(const std::string& name, bool jobs_end) {
  if (jobs_end) fail_node(name);
  std::lock_guard lock(mutex_);
  std::erase_if(nodes_, [&](const auto& record) { return record->name == name; });
  for (PartitionRecord& partition : partitions_) std::erase(partition.nodes, name);
}

void FakeCluster::give_up_node(uint32_t job_id, const std::string& name) {
  std::lock_guard lock(mutex_);
  JobRecord& job = jobs_.at(job_id);
  NodeRecord* left = node(name);
  left->gpus_allocated -= job.gpus_on_node[name];
  left->cpus_allocated -= job.cpus_on_node[name];
  left->memory_allocated_mib -= job.memory_per_node_mib;
  job.gpus_allocated -= job.gpus_on_node[name];
  job.gpus_on_node.erase(name);
  job.cpus_on_node.erase(name);
  std::erase(job.nodes, name);
  schedule();
}

void FakeCluster::hold_companions(bool hold) {
  std::lock_guard lock(mutex_);
  hold_companions_ = hold;
  schedule();
}
void FakeCluster::fail_submissions(bool fail) {
  std::lock_guard lock(mutex_);
  fail_submissions_ = fail;
}
void FakeCluster::fail_observation(bool fail) {
  std::lock_guard lock(mutex_);
  fail_observation_ = fail;
}
void FakeCluster::complete_slowly(int64_t seconds) {
  std::lock_guard lock(mutex_);
  completing_seconds_ = seconds;
}

int64_t FakeCluster::now() const {
  std::lock_guard lock(mutex_);
  return now_;
}
JobRecord FakeCluster::find(uint32_t job_id) const {
  std::lock_guard lock(mutex_);
  const auto found = jobs_.find(job_id);
  return found == jobs_.end() ? JobRecord{} : found->second;
}
std::vector<JobRecord> FakeCluster::companions(bool alive_only) const {
  std::lock_guard lock(mutex_);
  std::vector<JobRecord> result;
  for (const auto& [id, job] : jobs_) {
    if (is_companion(job) && !(alive_only && job.state == JobState::kEnded)) result.push_back(job);
  }
  return result;
}
std::vector<CompanionRequest> FakeCluster::requests() const {
  std::lock_guard lock(mutex_);
  return requests_;
}
std::vector<uint32_t> FakeCluster::cancelled() const {
  std::lock_guard lock(mutex_);
  return cancelled_;
}

Result<ClusterView> FakeCluster::observe() {
  called("observe");
  std::lock_guard lock(mutex_);
  if (fail_observation_) return unavailable("slurmctld does not answer");
  ClusterView view;
  view.now = now_;
  for (const auto& [id, job] : jobs_) {
    if (job.state != JobState::kEnded) view.jobs.push_back(job);
  }
  for (const auto& record : nodes_) view.nodes.push_back(*record);
  view.partitions = partitions_;
  return view;
}

Result<JobRecord> FakeCluster::job(uint32_t job_id) {
  called("job");
  std::lock_guard lock(mutex_);
  const auto found = jobs_.find(job_id);
  if (found == jobs_.end()) return not_found("no job {}", job_id);
  return found->second;
}

Result<uint32_t> FakeCluster::submit_companion(const CompanionRequest& request) {
  called("submit_companion");
  JobRecord record;
  {
    std::lock_guard lock(mutex_);
    if (fail_submissions_) return unavailable("submission refused");
    requests_.push_back(request);
    record.user_id = request.user_id;
    record.group_id = request.group_id;
    record.name = request.name;
    record.partition = request.partition;
    record.admin_comment = request.admin_comment;
    record.time_limit_seconds = (request.lease_seconds + 59) / 60 * 60;
    record.required_nodes = request.node;
    record.tres_per_node = request.gres;
    record.gpus_requested = std::stoi(request.gres.substr(request.gres.rfind(':') + 1));
    record.cpus_requested = request.cpus;
    record.memory_per_node_mib = request.memory_mib;
  }
  return submit(std::move(record));
}

Status FakeCluster::cancel(uint32_t job_id) {
  called("cancel");
  std::lock_guard lock(mutex_);
  cancelled_.push_back(job_id);
  const auto found = jobs_.find(job_id);
  if (found == jobs_.end() || found->second.state == JobState::kEnded) return {};
  end(found->second, 0);
  schedule();
  return {};
}

Status FakeCluster::set_time_limit(uint32_t job_id, int64_t seconds) {
  called("set_time_limit");
  std::lock_guard lock(mutex_);
  const auto found = jobs_.find(job_id);
  if (found == jobs_.end() || found->second.state == JobState::kEnded) {
    return not_found("no running job {}", job_id);
  }
  JobRecord& job = found->second;
  job.time_limit_seconds = (seconds + 59) / 60 * 60;
  if (job.start_time > 0) job.end_time = job.start_time + job.time_limit_seconds;
  return {};
}

Status FakeCluster::set_admin_comment(uint32_t job_id, const std::string& text) {
  called("set_admin_comment");
  std::lock_guard lock(mutex_);
  const auto found = jobs_.find(job_id);
  if (found == jobs_.end()) return not_found("no job {}", job_id);
  found->second.admin_comment = text;
  return {};
}

NodeRecord* FakeCluster::node(const std::string& name) {
  for (auto& record : nodes_) {
    if (record->name == name) return record.get();
  }
  return nullptr;
}

void FakeCluster::schedule() {
  std::vector<JobRecord*> queue;
  for (auto& [id, job] : jobs_) {
    if (job.state == JobState::kPending && !job.held) queue.push_back(&job);
  }
  std::stable_sort(queue.begin(), queue.end(), [](const JobRecord* a, const JobRecord* b) {
    return a->priority != b->priority ? a->priority > b->priority : a->job_id < b->job_id;
  });
  bool blocked = false;
  for (JobRecord* job : queue) {
    if (is_companion(*job) && hold_companions_) {
      job->state_reason = "Priority";
      continue;
    }
    if (blocked) {
      job->state_reason = "Priority";
    } else if (!try_start(*job)) {
      job->state_reason = "Resources";
      blocked = true;
    }
  }
}

bool FakeCluster::try_start(JobRecord& job) {
  const int nodes = std::max(1, job.nodes_requested);
  const int gpus_per_node = (job.gpus_requested + nodes - 1) / nodes;
  const int cpus_per_node = std::max(1, (job.cpus_requested + nodes - 1) / nodes);
  std::vector<NodeRecord*> chosen;
  for (auto& record : nodes_) {
    if (static_cast<int>(chosen.size()) == nodes) break;
    if (!record->usable) continue;
    if (!job.required_nodes.empty() && record->name != job.required_nodes) continue;
    if (record->gpus - record->gpus_allocated < gpus_per_node ||
        record->cpus - record->cpus_allocated < cpus_per_node ||
        record->memory_mib - record->memory_allocated_mib < job.memory_per_node_mib) {
      continue;
    }
    chosen.push_back(record.get());
  }
  if (static_cast<int>(chosen.size()) < nodes) return false;
  job.state = JobState::kRunning;
  job.state_reason = "None";
  job.start_time = now_;
  job.end_time = job.time_limit_seconds > 0 ? now_ + job.time_limit_seconds : 0;
  for (NodeRecord* record : chosen) {
    record->gpus_allocated += gpus_per_node;
    record->cpus_allocated += cpus_per_node;
    record->memory_allocated_mib += job.memory_per_node_mib;
    job.nodes.push_back(record->name);
    job.gpus_on_node[record->name] = gpus_per_node;
    job.cpus_on_node[record->name] = cpus_per_node;
  }
  job.gpus_allocated = gpus_per_node * nodes;
  job.batch_host = job.nodes.front();
  return true;
}

void FakeCluster::release(JobRecord& job) {
  for (const auto& [name, gpus] : job.gpus_on_node) {
    NodeRecord* record = node(name);
    if (record == nullptr) continue;  // removed
    record->gpus_allocated -= gpus;
    record->cpus_allocated -= job.cpus_on_node[name];
    record->memory_allocated_mib -= job.memory_per_node_mib;
  }
  job.gpus_on_node.clear();
  job.cpus_on_node.clear();
  job.nodes.clear();
  job.gpus_allocated = 0;
  job.state = JobState::kEnded;
  if (job.end_time == 0 || job.end_time > now_) job.end_time = now_;
}

void FakeCluster::end(JobRecord& job, int exit_code) {
  if (job.state == JobState::kEnded || job.state == JobState::kCompleting) return;
  job.exit_code = exit_code;
  if (job.state == JobState::kRunning && completing_seconds_ > 0) {
    job.state = JobState::kCompleting;
    completing_until_[job.job_id] = now_ + completing_seconds_;
    return;
  }
  release(job);
}

}  // namespace flextrain::slurm_plugin
