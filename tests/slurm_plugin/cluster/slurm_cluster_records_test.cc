// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm_plugin/cluster/slurm_cluster_records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace flextrain::slurm_plugin {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

char* text(const char* value) { return const_cast<char*>(value); }

JobRecord record_of(const slurm_job_info_t& job, const std::vector<std::string>& node_names = {}) {
  UserNames users;
  return job_record(job, node_names, users);
}

slurm_job_info_t empty_job() {
  slurm_job_info_t job{};
  job.time_limit = NO_VAL;
  job.pn_min_memory = NO_VAL64;
  job.ntasks_per_node = job.sockets_per_node = NO_VAL16;
  job.num_tasks = 1;
  job.num_nodes = 1;
  job.shared = NO_VAL16;
  job.priority = 1000;
  job.user_name = text("alice");
  return job;
}

TEST(NodeState, OnlyNodesThatTakeJobsNowAreUsable) {
  for (const uint32_t base : {NODE_STATE_IDLE, NODE_STATE_ALLOCATED, NODE_STATE_MIXED}) {
    EXPECT_TRUE(node_state_usable(base));
    EXPECT_TRUE(node_state_usable(base | NODE_STATE_COMPLETING));
    EXPECT_TRUE(node_state_usable(base | NODE_STATE_CLOUD));
    for (const uint64_t flag :
         {NODE_STATE_DRAIN, NODE_STATE_NO_RESPOND, NODE_STATE_POWERED_DOWN, NODE_STATE_FAIL,
          NODE_STATE_POWERING_UP, NODE_STATE_POWERING_DOWN, NODE_STATE_MAINT, NODE_STATE_RES,
          NODE_STATE_PLANNED, NODE_STATE_REBOOT_REQUESTED, NODE_STATE_INVALID_REG,
          NODE_STATE_POWER_DOWN, NODE_STATE_POWER_DRAIN}) {
      EXPECT_FALSE(node_state_usable(static_cast<uint32_t>(base | flag))) << std::hex << flag;
    }
  }
  for (const uint32_t base : {NODE_STATE_UNKNOWN, NODE_STATE_DOWN, NODE_STATE_FUTURE}) {
    EXPECT_FALSE(node_state_usable(base)) << base;
  }
}

struct StateCase {
  uint64_t slurm;
  JobState state;
  bool requeued;
};
TEST(JobStates, AreTold) {
  for (const StateCase& c : {
           StateCase{JOB_PENDING, JobState::kPending, false},
           StateCase{JOB_RUNNING, JobState::kRunning, false},
           StateCase{JOB_RUNNING | JOB_CONFIGURING, JobState::kConfiguring, false},
           StateCase{JOB_RUNNING | JOB_COMPLETING, JobState::kCompleting, false},
           StateCase{JOB_CANCELLED | JOB_COMPLETING, JobState::kCompleting, false},
           StateCase{JOB_PENDING | JOB_COMPLETING, JobState::kCompleting, true},
           StateCase{JOB_SUSPENDED, JobState::kSuspended, false},
           StateCase{JOB_COMPLETE, JobState::kEnded, false},
           StateCase{JOB_TIMEOUT, JobState::kEnded, false},
           StateCase{JOB_PREEMPTED | JOB_REQUEUE, JobState::kEnded, true},
       }) {
    slurm_job_info_t job = empty_job();
    job.job_state = static_cast<uint32_t>(c.slurm);
    const JobRecord record = record_of(job);
    EXPECT_EQ(record.state, c.state) << std::hex << c.slurm;
    EXPECT_EQ(record.requeued, c.requeued) << std::hex << c.slurm;
  }
}

TEST(JobRecordOf, EachUserIsLookedUpOnceInASweep) {
  std::vector<uint32_t> asked;
  UserNames names([&](uint32_t uid) {
    asked.push_back(uid);
    return "user" + std::to_string(uid);
  });
  for (const uint32_t uid : {7u, 8u, 7u, 7u, 8u}) {
    slurm_job_info_t job = empty_job();
    job.user_id = uid;
    job.user_name = nullptr;
    EXPECT_EQ(job_record(job, {}, names).user_name, "user" + std::to_string(uid));
  }
  EXPECT_EQ(asked, (std::vector<uint32_t>{7, 8}));
}

TEST(JobRecordOf, APendingJob) {
  slurm_job_info_t job = empty_job();
  job.job_id = 7;
  job.job_state = JOB_PENDING;
  job.state_reason = WAIT_RESOURCES;
  job.num_nodes = 2;
  job.tres_per_node = text("gres:gpu:a100:4");
  job.sched_nodes = text("n[3-4]");
  job.start_time = 1000;
  job.time_limit = 30;
  job.pn_min_memory = 2048 | MEM_PER_CPU;
  const JobRecord record = record_of(job, {"n1", "n2", "n3", "n4"});
  EXPECT_EQ(record.job_id, 7u);
  EXPECT_EQ(record.state_reason, "Resources");
  EXPECT_EQ(record.gpus_requested, 8);
  EXPECT_EQ(record.gres_type, "a100");
  EXPECT_EQ(record.planned_nodes, "n[3-4]");
  EXPECT_EQ(record.start_time, 1000);
  EXPECT_EQ(record.time_limit_seconds, 1800);
  EXPECT_EQ(record.memory_per_cpu_mib, 2048);
  EXPECT_EQ(record.memory_per_node_mib, 0);
  EXPECT_FALSE(record.held);
  EXPECT_FALSE(record.exclusive);
  EXPECT_THAT(record.nodes, IsEmpty());

  job.priority = 0;
  job.shared = 0;
  job.time_limit = INFINITE;
  job.pn_min_memory = 4096;
  job.tres_req_str = text("cpu=2,node=2,gres/gpu=6");
  const JobRecord other = record_of(job);
  EXPECT_TRUE(other.held);
  EXPECT_TRUE(other.exclusive);
  EXPECT_EQ(other.time_limit_seconds, 0);
  EXPECT_EQ(other.memory_per_node_mib, 4096);
  EXPECT_EQ(other.gpus_requested, 6);  // slurmctld's own count
}

// Slurm writes a job's nodes sorted by name, but its GRES in the node table's order.
TEST(JobRecordOf, ARunningJobsGpusStandAtTheRightNodes) {
  slurm_job_info_t job = empty_job();
  job.job_state = JOB_RUNNING;
  job.nodes = text("n[2,10]");
  int32_t places[] = {0, 1, -1};
  job.node_inx = places;
  char* gres[] = {text("gpu:5(IDX:0-4)"), text("gpu:a100:3(IDX:0-2)")};
  job.gres_detail_cnt = 2;
  job.gres_detail_str = gres;
  const JobRecord record = record_of(job, {"n10", "n2"});
  EXPECT_THAT(record.nodes, ElementsAre("n10", "n2"));
  EXPECT_EQ(record.gpus_on_node.at("n10"), 5);
  EXPECT_EQ(record.gpus_on_node.at("n2"), 3);
  EXPECT_EQ(record.gpus_allocated, 8);

  // A node table that does not know these places: by name, as well as can be.
  EXPECT_THAT(record_of(job).nodes, ElementsAre("n2", "n10"));
}

// It went wrong: only a node with "planned" in its words counted for the job that it was planned
// for, and the words are "ALLOCATED", "MIXED-" or "COMPLETING" for others: a companion there was
// not asked to leave, or a second elastic job was made to give a GPU back while the first was on
// its way.
TEST(NodeRecordOf, PlannedNodesAreTheQueuesInWhateverElseTheyAre) {
  node_info_t node{};
  node.name = text("n1");
  for (const uint32_t base : {NODE_STATE_IDLE, NODE_STATE_ALLOCATED, NODE_STATE_MIXED}) {
    for (const uint64_t flag : {uint64_t{0}, uint64_t{NODE_STATE_COMPLETING}}) {
      node.node_state = static_cast<uint32_t>(base | flag | NODE_STATE_PLANNED);
      EXPECT_FALSE(node_record(node).usable) << node_record(node).state;
      EXPECT_TRUE(node_record(node).planned) << node_record(node).state;
      node.node_state |= NODE_STATE_DRAIN;
      EXPECT_FALSE(node_record(node).planned) << node_record(node).state;
      node.node_state = static_cast<uint32_t>(base | flag);
      EXPECT_TRUE(node_record(node).usable);
      EXPECT_FALSE(node_record(node).planned);
    }
  }
}

TEST(NodeRecordOf, CountsGpusAndMemory) {
  node_info_t node{};
  node.name = text("n1");
  node.node_state = NODE_STATE_MIXED;
  node.gres = text("gpu:a100:8(S:0-1)");
  node.gres_used = text("gpu:a100:3(IDX:0-2)");
  node.cpus = 64;
  node.cpus_efctv = 60;
  node.real_memory = 1000;
  node.mem_spec_limit = 100;
  node.features = text("a,b");
  const NodeRecord record = node_record(node);
  EXPECT_TRUE(record.usable);
  EXPECT_EQ(record.gpus, 8);
  EXPECT_EQ(record.gpus_allocated, 3);
  EXPECT_EQ(record.gres_type, "a100");
  EXPECT_EQ(record.cpus, 60);
  EXPECT_EQ(record.memory_mib, 900);
  EXPECT_THAT(record.features, ElementsAre("a", "b"));
}

TEST(PartitionRecordOf, KnowsLimitsAndState) {
  partition_info_t partition{};
  partition.name = text("main");
  partition.nodes = text("n[1-2],x");
  partition.max_time = INFINITE;
  partition.max_nodes = INFINITE;
  partition.state_up = PARTITION_UP;
  PartitionRecord record = partition_record(partition);
  EXPECT_TRUE(record.up);
  EXPECT_EQ(record.max_time_seconds, 0);
  EXPECT_EQ(record.max_nodes, 0);
  EXPECT_THAT(record.nodes, ElementsAre("n1", "n2", "x"));
  partition.state_up = PARTITION_DRAIN;
  partition.max_time = 10;
  record = partition_record(partition);
  EXPECT_FALSE(record.up);
  EXPECT_EQ(record.max_time_seconds, 600);
}

TEST(Hostlist, Expands) {
  EXPECT_THAT(expand_hostlist("n[1-3],gpu07"), ElementsAre("n1", "n2", "n3", "gpu07"));
  EXPECT_THAT(expand_hostlist(""), IsEmpty());
  EXPECT_THAT(expand_hostlist(nullptr), IsEmpty());
  EXPECT_THAT(expand_hostlist("(null)"), IsEmpty());
}

}  // namespace
}  // namespace flextrain::slurm_plugin
