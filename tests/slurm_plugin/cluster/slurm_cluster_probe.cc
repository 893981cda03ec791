// SPDX-License-Identifier: GPL-2.0-or-later
// Drives SlurmCluster by hand against a running Slurm, for the end-to-end tests and for people:
//   slurm_cluster_probe observe                 the whole view as JSON
//   slurm_cluster_probe job ID                  one job as JSON
//   slurm_cluster_probe submit UID GID NODE GPUS LEASE_SECONDS PARTITION WORK_DIR SCRIPT_TEXT
//   slurm_cluster_probe cancel ID
//   slurm_cluster_probe limit ID SECONDS
//   slurm_cluster_probe comment ID TEXT
#include <slurm/slurm.h>

#include <cstdio>
#include <string>

#include "base/json.h"
#include "base/text.h"
#include "slurm_plugin/cluster/slurm_cluster.h"

namespace {

using namespace flextrain;
using namespace flextrain::slurm_plugin;

const char* state_name(JobState state) {
  switch (state) {
    case JobState::kPending:
      return "pending";
    case JobState::kConfiguring:
      return "configuring";
    case JobState::kRunning:
      return "running";
    case JobState::kSuspended:
      return "suspended";
    case JobState::kCompleting:
      return "completing";
    case JobState::kEnded:
      return "ended";
  }
  return "?";
}

Json to_json(const JobRecord& job) {
  return {{"job_id", job.job_id},
          {"het_job_id", job.het_job_id},
          {"array_job_id", job.array_job_id},
          {"user", job.user_name},
          {"user_id", job.user_id},
          {"group_id", job.group_id},
          {"name", job.name},
          {"account", job.account},
          {"qos", job.qos},
          {"partition", job.partition},
          {"state", state_name(job.state)},
          {"requeued", job.requeued},
          {"held", job.held},
          {"reason", job.state_reason},
          {"admin_comment", job.admin_comment},
          {"submit_time", job.submit_time},
          {"start_time", job.start_time},
          {"end_time", job.end_time},
          {"restart_count", job.restart_count},
          {"time_limit_seconds", job.time_limit_seconds},
          {"nodes_requested", job.nodes_requested},
          {"gpus_requested", job.gpus_requested},
          {"cpus_requested", job.cpus_requested},
          {"gres_type", job.gres_type},
          {"tres_per_node", job.tres_per_node},
          {"tres_per_job", job.tres_per_job},
          {"memory_per_node_mib", job.memory_per_node_mib},
          {"memory_per_cpu_mib", job.memory_per_cpu_mib},
          {"exclusive", job.exclusive},
          {"nodes", job.nodes},
          {"gpus_on_node", job.gpus_on_node},
          {"cpus_on_node", job.cpus_on_node},
          {"gpus_allocated", job.gpus_allocated},
          {"batch_host", job.batch_host},
          {"work_dir", job.work_dir},
          {"planned_nodes", job.planned_nodes},
          {"exit_code", job.exit_code}};
}

Json to_json(const ClusterView& view) {
  Json json = {{"now", view.now},
               {"jobs", Json::array()},
               {"nodes", Json::array()},
               {"partitions", Json::array()},
               {"reservations", Json::array()}};
  for (const JobRecord& job : view.jobs) json["jobs"].push_back(to_json(job));
  for (const NodeRecord& node : view.nodes) {
    json["nodes"].push_back({{"name", node.name},
                             {"address", node.address},
                             {"usable", node.usable},
                             {"state", node.state},
                             {"features", node.features},
                             {"partitions", node.partitions},
                             {"gres_type", node.gres_type},
                             {"gpus", node.gpus},
                             {"gpus_allocated", node.gpus_allocated},
                             {"cpus", node.cpus},
                             {"cpus_allocated", node.cpus_allocated},
                             {"memory_mib", node.memory_mib},
                             {"memory_allocated_mib", node.memory_allocated_mib}});
  }
  for (const PartitionRecord& partition : view.partitions) {
    json["partitions"].push_back({{"name", partition.name},
                                  {"up", partition.up},
                                  {"nodes", partition.nodes},
                                  {"max_time_seconds", partition.max_time_seconds},
                                  {"priority_tier", partition.priority_tier},
                                  {"max_nodes", partition.max_nodes}});
  }
  for (const ReservationRecord& reservation : view.reservations) {
    json["reservations"].push_back({{"name", reservation.name},
                                    {"start_time", reservation.start_time},
                                    {"end_time", reservation.end_time},
                                    {"nodes", reservation.nodes}});
  }
  return json;
}

int finish(const Status& status) {
  if (status.ok()) return 0;
  std::fprintf(stderr, "slurm_cluster_probe: %s\n", status.to_string().c_str());
  return 1;
}

int usage() {
  std::fputs("usage: slurm_cluster_probe observe|job|submit|cancel|limit|comment …\n", stderr);
  return 2;
}

int run(const std::string& what, const std::vector<std::string>& arguments, Cluster& cluster) {
  const auto number = [&](size_t i) { return parse_int(arguments[i]).value_or(0); };
  const auto id = [&](size_t i) { return static_cast<uint32_t>(number(i)); };
  const size_t count = arguments.size();
  if (what == "observe" && count == 0) {
    const Result<ClusterView> view = cluster.observe();
    if (!view.ok()) return finish(view.status());
    std::puts(to_json(*view).dump(1).c_str());
    return 0;
  }
  if (what == "job" && count == 1) {
    const Result<JobRecord> job = cluster.job(id(0));
    if (!job.ok()) return finish(job.status());
    std::puts(to_json(*job).dump(1).c_str());
    return 0;
  }
  if (what == "submit" && count == 8) {
    CompanionRequest request;
    request.user_id = id(0);
    request.group_id = id(1);
    request.name = "companion-probe";
    request.node = arguments[2];
    request.gres = "gres:gpu:" + arguments[3];
    request.lease_seconds = number(4);
    request.partition = arguments[5];
    request.work_dir = arguments[6];
    request.std_out = arguments[6] + "/companion-%j.out";
    request.script = "#!/bin/bash\n" + arguments[7] + "\n";
    // Not a companion's token: a controller would take it for an orphan and cancel it.
    request.admin_comment = "slurm_cluster_probe";
    request.rlimits = {{"RLIMIT_NOFILE", 777}};
    request.umask = 0027;
    request.environment = {"PATH=/usr/bin:/bin", "FLEXTRAIN_PROBE=1"};
    request.signal_before_end_seconds = 30;
    const Result<uint32_t> job = cluster.submit_companion(request);
    if (!job.ok()) return finish(job.status());
    std::printf("%u\n", *job);
    return 0;
  }
  if (what == "cancel" && count == 1) return finish(cluster.cancel(id(0)));
  if (what == "limit" && count == 2) return finish(cluster.set_time_limit(id(0), number(1)));
  if (what == "comment" && count == 2) {
    return finish(cluster.set_admin_comment(id(0), arguments[1]));
  }
  return usage();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return usage();
  slurm_init(nullptr);
  Result<std::unique_ptr<Cluster>> cluster = make_slurm_cluster({});
  if (!cluster.ok()) return finish(cluster.status());
  return run(argv[1], {argv + 2, argv + argc}, **cluster);
}
