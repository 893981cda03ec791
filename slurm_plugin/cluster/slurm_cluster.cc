// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm_plugin/cluster/slurm_cluster.h"

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>

#include <csignal>
#include <ctime>
#include <utility>

#include "slurm_plugin/cluster/slurm_cluster_records.h"

// Slurm's own, exported by slurmctld and libslurm, not in its public headers: frees and clears.
extern "C" void slurm_xfree(void** item);

namespace flextrain::slurm_plugin {
namespace {

// slurm_free_job_info_msg of 22.05.8 forgets admin_comment: at every look one for each job was
// lost.
void free_jobs(job_info_msg_t* message) {
  for (uint32_t i = 0; i < message->record_count; ++i) {
    slurm_xfree(reinterpret_cast<void**>(&message->job_array[i].admin_comment));
  }
  slurm_free_job_info_msg(message);
}

// Owns what an RPC returned.
template <typename Message, void (*kFree)(Message*)>
struct Reply {
  Message* message = nullptr;
  Reply() = default;
  Reply(const Reply&) = delete;
  Reply& operator=(const Reply&) = delete;
  ~Reply() {
    if (message) kFree(message);
  }
  Message* operator->() const { return message; }
};
using Jobs = Reply<job_info_msg_t, free_jobs>;
using Nodes = Reply<node_info_msg_t, slurm_free_node_info_msg>;
using Partitions = Reply<partition_info_msg_t, slurm_free_partition_info_msg>;
using Reservations = Reply<reserve_info_msg_t, slurm_free_reservation_info_msg>;
using Submitted = Reply<submit_response_msg_t, slurm_free_submit_response_response_msg>;

bool is_absent(int error) {
  return error == ESLURM_INVALID_JOB_ID || error == ESLURM_ALREADY_DONE ||
         error == ESLURM_JOB_NOT_PENDING_NOR_RUNNING;
}

Status failure(std::string_view what, int error) {
  StatusCode code = StatusCode::kUnavailable;
  if (error == ESLURM_INVALID_JOB_ID) code = StatusCode::kNotFound;
  if (error == ESLURM_ACCESS_DENIED || error == ESLURM_USER_ID_MISSING) {
    code = StatusCode::kPermissionDenied;
  }
  return Status(code, fmt::format("{}: {} (Slurm error {})", what, slurm_strerror(error), error));
}

uint32_t whole_minutes(int64_t seconds) {
  return static_cast<uint32_t>(seconds <= 60 ? 1 : (seconds + 59) / 60);
}

// sbatch's own way to carry limits and umask: slurmstepd reads them from the environment.
void add_limits(const CompanionRequest& request, std::vector<std::string>& environment) {
  for (const auto& [name, value] : request.rlimits) {
    const std::string_view bare =
        name.starts_with("RLIMIT_") ? std::string_view(name).substr(7) : std::string_view(name);
    environment.push_back(fmt::format("SLURM_RLIMIT_{}={}", bare, static_cast<uint64_t>(value)));
  }
  environment.push_back(fmt::format("SLURM_UMASK={:04o}", request.umask & 0777));
}

char* chars(const std::string& text) {  // slurm.h knows no const; it does not write
  return text.empty() ? nullptr : const_cast<char*>(text.c_str());
}

class SlurmCluster : public Cluster {
 public:
  explicit SlurmCluster(SlurmClusterOptions options) : options_(std::move(options)) {}

  Status ask_name() {
    slurm_conf_t* conf = nullptr;
    if (slurm_load_ctl_conf(0, &conf) != SLURM_SUCCESS) {
      return failure("reading slurmctld's configuration", slurm_get_errno());
    }
    options_.cluster_name = conf->cluster_name ? conf->cluster_name : "";
    slurm_free_ctl_conf(conf);
    return {};
  }

  Result<ClusterView> observe() override {
    ClusterView view;
    view.now = static_cast<int64_t>(time(nullptr));
    // Nodes first: jobs name their nodes by place in the node table. Where a job starts in between,
    // its nodes still look idle; the controller's companions then wait or fail, and are taken back.
    RETURN_IF_ERROR(load_nodes(&view));
    {
      RETURN_IF_ERROR(may_call());
      Jobs jobs;
      if (slurm_load_jobs(0, &jobs.message, SHOW_ALL | SHOW_DETAIL) != SLURM_SUCCESS) {
        return failure("reading jobs", slurm_get_errno());
      }
      UserNames users;
      view.jobs.reserve(jobs->record_count);
      for (uint32_t i = 0; i < jobs->record_count; ++i) {
        view.jobs.push_back(job_record(jobs->job_array[i], node_names_, users));
      }
    }
    {
      RETURN_IF_ERROR(may_call());
      Partitions partitions;
      if (slurm_load_partitions(0, &partitions.message, SHOW_ALL) != SLURM_SUCCESS) {
        return failure("reading partitions", slurm_get_errno());
      }
      for (uint32_t i = 0; i < partitions->record_count; ++i) {
        view.partitions.push_back(partition_record(partitions->partition_array[i]));
      }
    }
    {
      RETURN_IF_ERROR(may_call());
      Reservations reservations;
      if (slurm_load_reservations(0, &reservations.message) != SLURM_SUCCESS) {
        return failure("reading reservations", slurm_get_errno());
      }
      for (uint32_t i = 0; i < reservations->record_count; ++i) {
        view.reservations.push_back(reservation_record(reservations->reservation_array[i]));
      }
    }
    name_partitions(view);
    if (options_.on_observe) options_.on_observe(view);
    return view;
  }

  Result<JobRecord> job(uint32_t job_id) override {
    if (node_names_.empty()) RETURN_IF_ERROR(load_nodes(nullptr));
    RETURN_IF_ERROR(may_call());
    Jobs jobs;
    if (slurm_load_job(&jobs.message, job_id, SHOW_ALL | SHOW_DETAIL) != SLURM_SUCCESS) {
      return failure(fmt::format("reading job {}", job_id), slurm_get_errno());
    }
    UserNames users;
    for (uint32_t i = 0; i < jobs->record_count; ++i) {  // an array or het job brings several
      if (jobs->job_array[i].job_id != job_id) continue;
      return job_record(jobs->job_array[i], node_names_, users);
    }
    return not_found("job {}: slurmctld does not know it", job_id);
  }

  Result<uint32_t> submit_companion(const CompanionRequest& request) override {
    RETURN_IF_ERROR(may_call());
    std::vector<std::string> environment = request.environment;
    if (environment.empty()) environment.emplace_back("PATH=/usr/local/bin:/usr/bin:/bin");
    add_limits(request, environment);
    std::vector<char*> environment_pointers;
    for (std::string& entry : environment) environment_pointers.push_back(entry.data());
    environment_pointers.push_back(nullptr);

    job_desc_msg_t job;
    slurm_init_job_desc_msg(&job);
    job.user_id = request.user_id;
    job.group_id = request.group_id;
    job.name = chars(request.name);
    job.account = chars(request.account);
    job.qos = chars(request.qos);
    job.partition = chars(request.partition);
    job.reservation = chars(request.reservation);
    job.req_nodes = chars(request.node);
    job.features = chars(request.features);
    job.tres_per_node = chars(request.gres);
    job.min_nodes = job.max_nodes = 1;
    job.num_tasks = 1;
    job.cpus_per_task = static_cast<uint16_t>(std::max(1, request.cpus));
    job.min_cpus = job.cpus_per_task;
    if (request.memory_mib > 0) job.pn_min_memory = static_cast<uint64_t>(request.memory_mib);
    job.time_limit = whole_minutes(request.lease_seconds);
    job.work_dir = chars(request.work_dir);
    job.script = chars(request.script);
    job.std_out = chars(request.std_out);
    job.std_in = const_cast<char*>("/dev/null");
    job.open_mode = OPEN_MODE_APPEND;
    job.admin_comment = chars(request.admin_comment);
    job.requeue = 0;  // a companion that ends is replaced by a new decision, never by Slurm
    job.environment = environment_pointers.data();
    job.env_size = static_cast<uint32_t>(environment.size());
    if (request.signal_before_end_seconds > 0) {
      job.warn_flags = KILL_JOB_BATCH;
      job.warn_signal = SIGUSR1;
      job.warn_time = static_cast<uint16_t>(request.signal_before_end_seconds);
    }

    Submitted reply;
    if (slurm_submit_batch_job(&job, &reply.message) != SLURM_SUCCESS) {
      return failure(fmt::format("submitting a companion on {}", request.node), slurm_get_errno());
    }
    return reply->job_id;
  }

  Status cancel(uint32_t job_id) override {
    RETURN_IF_ERROR(may_call());
    if (slurm_kill_job(job_id, SIGKILL, 0) == SLURM_SUCCESS) return {};
    const int error = slurm_get_errno();
    if (is_absent(error)) return {};
    return failure(fmt::format("cancelling job {}", job_id), error);
  }

  Status set_time_limit(uint32_t job_id, int64_t seconds) override {
    job_desc_msg_t change;
    slurm_init_job_desc_msg(&change);
    change.time_limit = whole_minutes(seconds);
    return update(job_id, change, "setting the time limit of");
  }

  Status set_admin_comment(uint32_t job_id, const std::string& text) override {
    job_desc_msg_t change;
    slurm_init_job_desc_msg(&change);
    change.admin_comment = const_cast<char*>(text.c_str());  // "" clears it
    return update(job_id, change, "setting the admin_comment of");
  }

  std::string cluster_name() const override { return options_.cluster_name; }

 private:
  Status may_call() const {
    if (options_.stopping && options_.stopping()) return aborted("slurmctld is shutting down");
    return {};
  }

  Status update(uint32_t job_id, job_desc_msg_t& change, std::string_view what) {
    RETURN_IF_ERROR(may_call());
    change.job_id = job_id;
    if (slurm_update_job(&change) == SLURM_SUCCESS) return {};
    return failure(fmt::format("{} job {}", what, job_id), slurm_get_errno());
  }

  Status load_nodes(ClusterView* view) {
    RETURN_IF_ERROR(may_call());
    Nodes nodes;
    if (slurm_load_node(0, &nodes.message, SHOW_ALL | SHOW_DETAIL) != SLURM_SUCCESS) {
      return failure("reading nodes", slurm_get_errno());
    }
    node_names_.assign(nodes->record_count, "");
    for (uint32_t i = 0; i < nodes->record_count; ++i) {
      const node_info_t& node = nodes->node_array[i];
      if (!node.name || !*node.name) continue;  // hidden from us; keeps its place
      node_names_[i] = node.name;
      if (view) view->nodes.push_back(node_record(node));
    }
    return {};
  }

  static void name_partitions(ClusterView& view) {
    std::map<std::string_view, NodeRecord*> nodes;
    for (NodeRecord& node : view.nodes) nodes[node.name] = &node;
    for (const PartitionRecord& partition : view.partitions) {
      for (const std::string& name : partition.nodes) {
        if (const auto found = nodes.find(name); found != nodes.end()) {
          found->second->partitions.push_back(partition.name);
        }
      }
    }
  }

  SlurmClusterOptions options_;
  std::vector<std::string> node_names_;  // the node table at the last look, in its order
};

}  // namespace

Result<std::unique_ptr<Cluster>> make_slurm_cluster(SlurmClusterOptions options) {
  const bool ask = options.cluster_name.empty();
  auto cluster = std::make_unique<SlurmCluster>(std::move(options));
  if (ask) RETURN_IF_ERROR(cluster->ask_name());
  return std::unique_ptr<Cluster>(std::move(cluster));
}

}  // namespace flextrain::slurm_plugin
