// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm_plugin/cluster/slurm_cluster_records.h"

#include <pwd.h>
#include <sys/wait.h>

#include <array>
#include <cstdlib>

#include "base/text.h"
#include "slurm_plugin/cluster/gres_text.h"

extern "C" {  // exported by libslurm and libslurmfull, declared in no public header
char* slurm_job_reason_string(enum job_state_reason reason);
char* slurm_node_state_string(uint32_t state);
}

namespace flextrain::slurm_plugin {
namespace {

std::string text(const char* value) { return value ? value : ""; }

int64_t unix_time(time_t value) { return value > 0 ? static_cast<int64_t>(value) : 0; }

int count(uint32_t value) {
  return value == NO_VAL || value == INFINITE ? 0 : static_cast<int>(value & 0x7fffffff);
}

int count16(uint16_t value) { return value == NO_VAL16 || value == INFINITE16 ? 0 : value; }

int64_t minutes(uint32_t value) {
  return value == NO_VAL || value == INFINITE ? 0 : int64_t{60} * value;
}

std::vector<std::string> list(const char* value) {
  std::vector<std::string> words;
  for (const std::string& word : split(text(value), ',')) {
    if (const std::string_view name = trim(word); !name.empty()) words.emplace_back(name);
  }
  return words;
}

JobState job_state(uint32_t state) {
  if (state & JOB_COMPLETING) return JobState::kCompleting;
  switch (state & JOB_STATE_BASE) {
    case JOB_PENDING:
      return JobState::kPending;
    case JOB_RUNNING:
      return state & JOB_CONFIGURING ? JobState::kConfiguring : JobState::kRunning;
    case JOB_SUSPENDED:
      return JobState::kSuspended;
    default:
      return JobState::kEnded;
  }
}

std::string system_user_name(uint32_t uid) {
  passwd entry{}, *found = nullptr;
  std::array<char, 4096> buffer{};
  if (getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found) == 0 && found) {
    return found->pw_name;
  }
  return std::to_string(uid);
}

// The job's nodes in the node table's order, which is also that of gres_detail_str; the order of
// the text job.nodes may be another one.
std::vector<std::string> allocated_nodes(const slurm_job_info_t& job,
                                         const std::vector<std::string>& node_names) {
  if (!job.nodes || !*job.nodes) return {};
  std::vector<std::string> nodes;
  for (const int32_t* range = job.node_inx; range && range[0] >= 0; range += 2) {
    for (int32_t i = range[0]; i <= range[1]; ++i) {
      if (static_cast<size_t>(i) >= node_names.size() || node_names[i].empty()) {
        return expand_hostlist(job.nodes);  // a node was added meanwhile
      }
      nodes.push_back(node_names[i]);
    }
  }
  return nodes.empty() ? expand_hostlist(job.nodes) : nodes;
}

void fill_allocation(const slurm_job_info_t& job, const std::vector<std::string>& node_names,
                     JobRecord& record) {
  record.nodes = allocated_nodes(job, node_names);
  for (size_t i = 0; i < record.nodes.size(); ++i) {
    const std::string& node = record.nodes[i];
    if (job.job_resrcs) {
      const int cpus = slurm_job_cpus_allocated_on_node(job.job_resrcs, node.c_str());
      if (cpus > 0) record.cpus_on_node[node] = cpus;
    }
    if (i >= job.gres_detail_cnt || !job.gres_detail_str) continue;
    const GpuCount gpus = gpus_in(text(job.gres_detail_str[i]));
    if (gpus.count == 0) continue;
    record.gpus_on_node[node] = gpus.count;
    record.gpus_allocated += gpus.count;
    if (record.gres_type.empty()) record.gres_type = gpus.type;
  }
}

int exit_code_of(uint32_t status) {
  if (status == NO_VAL) return 0;
  const int wait_status = static_cast<int>(status);
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

}  // namespace

UserNames::UserNames() : look_up_(system_user_name) {}

const std::string& UserNames::of(const slurm_job_info_t& job) {
  const auto [at, inserted] = names_.try_emplace(job.user_id);
  if (inserted) {
    at->second = job.user_name && *job.user_name ? job.user_name : look_up_(job.user_id);
  }
  return at->second;
}

std::vector<std::string> expand_hostlist(const char* hosts) {
  std::vector<std::string> names;
  if (!hosts || !*hosts || *hosts == '(') return names;
  hostlist_t expanded = slurm_hostlist_create(hosts);
  if (!expanded) return names;
  while (char* name = slurm_hostlist_shift(expanded)) {
    names.emplace_back(name);
    std::free(name);
  }
  slurm_hostlist_destroy(expanded);
  return names;
}

bool node_state_usable(uint32_t state) {
  constexpr uint64_t kBarred =
      NODE_STATE_RES | NODE_STATE_DRAIN | NODE_STATE_NO_RESPOND | NODE_STATE_POWERED_DOWN |
      NODE_STATE_FAIL | NODE_STATE_POWERING_UP | NODE_STATE_MAINT | NODE_STATE_REBOOT_REQUESTED |
      NODE_STATE_POWERING_DOWN | NODE_STATE_DYNAMIC_FUTURE | NODE_STATE_REBOOT_ISSUED |
      NODE_STATE_PLANNED | NODE_STATE_INVALID_REG | NODE_STATE_POWER_DOWN | NODE_STATE_POWER_UP |
      NODE_STATE_POWER_DRAIN;
  if (state & kBarred) return false;
  switch (state & NODE_STATE_BASE) {
    case NODE_STATE_IDLE:
    case NODE_STATE_ALLOCATED:
    case NODE_STATE_MIXED:
      return true;
    default:
      return false;
  }
}

JobRecord job_record(const slurm_job_info_t& job, const std::vector<std::string>& node_names,
                     UserNames& users) {
  JobRecord record;
  record.job_id = job.job_id;
  record.het_job_id = job.het_job_id;
  record.array_job_id = job.array_job_id;
  record.user_id = job.user_id;
  record.group_id = job.group_id;
  record.name = text(job.name);
  record.user_name = users.of(job);
  record.account = text(job.account);
  record.qos = text(job.qos);
  record.partition = text(job.partition);
  record.state = job_state(job.job_state);
  // A requeued job completes with the base state it will have next.
  record.requeued =
      (job.job_state & (JOB_REQUEUE | JOB_REQUEUE_HOLD | JOB_SPECIAL_EXIT)) != 0 ||
      (record.state == JobState::kCompleting && (job.job_state & JOB_STATE_BASE) == JOB_PENDING);
  record.held = record.state == JobState::kPending && job.priority == 0;
  record.state_reason =
      text(slurm_job_reason_string(static_cast<enum job_state_reason>(job.state_reason)));
  record.admin_comment = text(job.admin_comment);
  record.comment = text(job.comment);
  record.submit_time = unix_time(job.submit_time);
  record.eligible_time = unix_time(job.eligible_time);
  record.start_time = unix_time(job.start_time);
  record.end_time = unix_time(job.end_time);
  record.restart_count = count16(job.restart_cnt);
  record.time_limit_seconds = minutes(job.time_limit);
  record.priority = job.priority;

  record.nodes_requested = count(job.num_nodes);
  record.cpus_requested = count(job.num_cpus);
  record.tres_per_node = text(job.tres_per_node);
  record.tres_per_job = text(job.tres_per_job);
  record.tres_per_task = text(job.tres_per_task);
  record.tres_per_socket = text(job.tres_per_socket);
  const GpuCount gpus = requested_gpus({.per_job = record.tres_per_job,
                                        .per_node = record.tres_per_node,
                                        .per_socket = record.tres_per_socket,
                                        .per_task = record.tres_per_task,
                                        .nodes = record.nodes_requested,
                                        .tasks = count(job.num_tasks),
                                        .tasks_per_node = count16(job.ntasks_per_node),
                                        .sockets_per_node = count16(job.sockets_per_node)});
  record.gpus_requested = gpus.count;
  record.gres_type = gpus.type;
  // Where AccountingStorageTRES counts GPUs, slurmctld has worked the total out itself.
  if (const int total = gpus_in(text(job.tres_req_str)).count; total > 0) {
    record.gpus_requested = total;
  }
  record.features = text(job.features);
  record.excluded_nodes = text(job.exc_nodes);
  record.required_nodes = text(job.req_nodes);
  record.reservation = text(job.resv_name);
  if (job.pn_min_memory != NO_VAL64) {
    const auto memory = static_cast<int64_t>(job.pn_min_memory & ~MEM_PER_CPU);
    (job.pn_min_memory & MEM_PER_CPU ? record.memory_per_cpu_mib : record.memory_per_node_mib) =
        memory;
  }
  record.exclusive = job.shared == 0;

  if (record.state != JobState::kPending && record.state != JobState::kEnded) {
    fill_allocation(job, node_names, record);
  }
  record.batch_host = text(job.batch_host);
  record.work_dir = text(job.work_dir);
  if (record.state == JobState::kPending) record.planned_nodes = text(job.sched_nodes);
  record.exit_code = exit_code_of(job.exit_code);
  return record;
}

NodeRecord node_record(const node_info_t& node) {
  NodeRecord record;
  record.name = text(node.name);
  record.address = text(node.node_addr);
  record.usable = node_state_usable(node.node_state);
  record.planned = !record.usable && node_state_usable(node.node_state & ~NODE_STATE_PLANNED);
  record.state = text(slurm_node_state_string(node.node_state));
  record.features = list(node.features_act ? node.features_act : node.features);
  const GpuCount gpus = gpus_in(text(node.gres));
  record.gpus = gpus.count;
  record.gres_type = gpus.type;
  record.gpus_allocated = gpus_in(text(node.gres_used)).count;
  record.cpus = node.cpus_efctv ? node.cpus_efctv : node.cpus;
  record.memory_mib = static_cast<int64_t>(node.real_memory - node.mem_spec_limit);
  if (node.select_nodeinfo) {
    uint16_t cpus = 0;
    slurm_get_select_nodeinfo(node.select_nodeinfo, SELECT_NODEDATA_SUBCNT, NODE_STATE_ALLOCATED,
                              &cpus);
    record.cpus_allocated = cpus;
    uint64_t memory = 0;  // wide enough whatever the release writes
    slurm_get_select_nodeinfo(node.select_nodeinfo, SELECT_NODEDATA_MEM_ALLOC, NODE_STATE_ALLOCATED,
                              &memory);
    record.memory_allocated_mib = static_cast<int64_t>(memory);
  }
  return record;
}

PartitionRecord partition_record(const partition_info_t& partition) {
  PartitionRecord record;
  record.name = text(partition.name);
  record.up = partition.state_up == PARTITION_UP;
  record.nodes = expand_hostlist(partition.nodes);
  record.max_time_seconds = minutes(partition.max_time);
  record.priority_tier = partition.priority_tier;
  record.max_nodes = count(partition.max_nodes);
  return record;
}

ReservationRecord reservation_record(const reserve_info_t& reservation) {
  ReservationRecord record;
  record.name = text(reservation.name);
  record.start_time = unix_time(reservation.start_time);
  record.end_time = unix_time(reservation.end_time);
  record.nodes = expand_hostlist(reservation.node_list);
  return record;
}

}  // namespace flextrain::slurm_plugin
