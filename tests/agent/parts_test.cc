// SPDX-License-Identifier: MIT
// The agent's pure parts, table by table.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include "agent/control_dir.h"
#include "agent/launch_map.h"
#include "agent/network.h"
#include "agent/output_relay.h"
#include "agent/process.h"
#include "agent/registration.h"
#include "agent/slurm_job.h"
#include "agent/words.h"
#include "tests/temp_folder.h"

namespace flextrain::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Words, SplitAsAShellWould) {
  EXPECT_THAT(*split_words(""), ElementsAre());
  EXPECT_THAT(*split_words("  a  b\t"), ElementsAre("a", "b"));
  EXPECT_THAT(*split_words("--x='a b' \"c d\"e f\\ g ''"),
              ElementsAre("--x=a b", "c de", "f g", ""));
  EXPECT_THAT(*split_words("'a\\b'"), ElementsAre("a\\b"));
  EXPECT_FALSE(split_words("'open").ok());
  EXPECT_FALSE(split_words("\"open").ok());
}

TEST(Hostlist, Expands) {
  EXPECT_THAT(*expand_hostlist("n1"), ElementsAre("n1"));
  EXPECT_THAT(*expand_hostlist("n[1-3],x"), ElementsAre("n1", "n2", "n3", "x"));
  EXPECT_THAT(*expand_hostlist("n[08-10,12]b"), ElementsAre("n08b", "n09b", "n10b", "n12b"));
  EXPECT_THAT(*expand_hostlist("r[1-2]n[1-2]"), ElementsAre("r1n1", "r1n2", "r2n1", "r2n2"));
}

TEST(Hostlist, Refuses) {
  for (const char* text : {"", "n[1-", "n]1", "n[[1]]", "n[3-1]", "n[a]", ",", "n[1-999999999]"}) {
    EXPECT_FALSE(expand_hostlist(text).ok()) << text;
  }
}

TEST(Counts, Expand) {
  EXPECT_THAT(*expand_counts("2(x3),1"), ElementsAre(2, 2, 2, 1));
  EXPECT_FALSE(expand_counts("2(x").ok());
  EXPECT_FALSE(expand_counts("x").ok());
}

Getenv environment(std::map<std::string, std::string> values) {
  return [values = std::move(values)](const char* name) {
    const auto it = values.find(name);
    return it == values.end() ? std::string() : it->second;
  };
}

TEST(SlurmJob, ReadsWhatSlurmShows) {
  const auto job = read_slurm_job(
      environment({{"SLURM_JOB_ID", "12"},
                   {"SLURM_CLUSTER_NAME", "Fx"},
                   {"SLURM_RESTART_COUNT", "2"},
                   {"SLURM_JOB_NODELIST", "n[1-3]"},
                   {"SLURMD_NODENAME", "n2"},
                   {"SLURM_GPUS_ON_NODE", "4"}}),
      "JobId=12 JobName=a SubmitTime=2026-01-02T03:04:05 NodeList=n[1-3] NumNodes=3 JOB_GRES=gpu:8 "
      "Nodes=n[1-2] CPU_IDs=0-1 Mem=0 GRES=gpu:a100:3(IDX:0,2,4) Nodes=n3 CPU_IDs=0 Mem=0 "
      "GRES=gpu:a100:1(IDX:0),gpu:a100:1(IDX:1),shard:2(IDX:0) MinCPUsNode=1");
  ASSERT_TRUE(job.ok()) << job.status().to_string();
  EXPECT_EQ(job->identity.cluster, "fx");
  EXPECT_EQ(job->identity.restart_count, 2);
  EXPECT_GT(job->identity.submit_time, 1767000000);
  EXPECT_TRUE(job->has_gpus);
  EXPECT_EQ(job->device_type, "a100");
  EXPECT_THAT(job->allocations, ElementsAre(protocol::Allocation{12, "n2", 3, ""},
                                            protocol::Allocation{12, "n1", 3, ""},
                                            protocol::Allocation{12, "n3", 2, ""}));
}

TEST(SlurmJob, TheEnvironmentAloneWorksToo) {
  const auto job = read_slurm_job(
      environment(
          {{"SLURM_JOB_ID", "12"}, {"SLURM_JOB_NODELIST", "n[1-2]"}, {"SLURM_GPUS_ON_NODE", "2"}}),
      "");
  ASSERT_TRUE(job.ok());
  EXPECT_EQ(job->own_host, "n1");
  EXPECT_EQ(job->identity.submit_time, 0);
  EXPECT_THAT(job->allocations, ElementsAre(protocol::Allocation{12, "n1", 2, ""},
                                            protocol::Allocation{12, "n2", 2, ""}));
}

TEST(SlurmJob, CpuJobsCountTasks) {
  const auto job = read_slurm_job(environment({{"SLURM_JOB_ID", "12"},
                                               {"SLURM_JOB_NODELIST", "n[1-3]"},
                                               {"SLURMD_NODENAME", "n3"},
                                               {"SLURM_TASKS_PER_NODE", "2(x2),1"}}),
                                  "");
  ASSERT_TRUE(job.ok());
  EXPECT_FALSE(job->has_gpus);
  EXPECT_THAT(job->allocations, ElementsAre(protocol::Allocation{12, "n3", 1, ""},
                                            protocol::Allocation{12, "n1", 2, ""},
                                            protocol::Allocation{12, "n2", 2, ""}));
}

TEST(SlurmJob, Refuses) {
  EXPECT_EQ(read_slurm_job(environment({}), "").status().code(), StatusCode::kNotFound);
  EXPECT_FALSE(read_slurm_job(environment({{"SLURM_JOB_ID", "x"}}), "").ok());
  EXPECT_FALSE(read_slurm_job(environment({{"SLURM_JOB_ID", "1"}}), "").ok());
  EXPECT_FALSE(read_slurm_job(environment({{"SLURM_JOB_ID", "1"},
                                           {"SLURM_JOB_NODELIST", "n1"},
                                           {"SLURMD_NODENAME", "login"}}),
                              "")
                   .ok());
}

TEST(LaunchMap, BaseAndCompanions) {
  const LaunchMap map = LaunchMap::build({{10, "n1", 2, ""},
                                          {10, "n2", 2, ""},
                                          {20, "n3", 4, ""},
                                          {21, "n2", 1, ""},
                                          {22, "n9", 0, ""}},
                                         "n2");
  EXPECT_EQ(map.num_ranks(), 9);
  EXPECT_EQ(map.mpirun_hosts(), "n2:3,n1:2,n3:4");
  EXPECT_EQ(map.to_text(), "10:n2:2,21:n2:1,10:n1:2,20:n3:4");
  EXPECT_EQ(LaunchMap::parse(map.to_text())->segments(), map.segments());
  EXPECT_EQ(*map.owner("n3"), 20u);
  EXPECT_EQ(*map.owner("n2"), 10u);
  EXPECT_FALSE(map.owner("n9").ok());
  const auto two = map.find(2);
  ASSERT_TRUE(two.ok());
  EXPECT_EQ(two->segment.job_id, 21u);
  EXPECT_EQ(two->index, 0);
  EXPECT_EQ(two->owner, 10u);
  EXPECT_EQ(map.find(8)->index, 3);
  EXPECT_FALSE(map.find(9).ok());
  EXPECT_FALSE(map.find(-1).ok());
}

TEST(LaunchMap, RefusesMalformedText) {
  for (const char* text : {"", "a", "1:n1", "1:n1:0", "x:n1:1", "1::1", "1:n1:1,"}) {
    EXPECT_FALSE(LaunchMap::parse(text).ok()) << text;
  }
}

// Every rank has exactly one place, ranks of one host are consecutive, counts agree.
TEST(LaunchMap, Properties) {
  std::mt19937 random(3);
  for (int round = 0; round < 500; ++round) {
    std::vector<protocol::Allocation> allocations;
    int total = 0;
    for (unsigned i = 1 + random() % 6; i > 0; --i) {
      const int gpus = static_cast<int>(random() % 4);
      allocations.push_back(
          {static_cast<uint32_t>(1 + random() % 3), "n" + std::to_string(random() % 4), gpus, ""});
      total += gpus;
    }
    const LaunchMap map = LaunchMap::build(allocations, "n1");
    ASSERT_EQ(map.num_ranks(), total);
    std::map<std::pair<uint32_t, std::string>, int> placed;
    for (int rank = 0; rank < total; ++rank) {
      const auto position = map.find(rank);
      ASSERT_TRUE(position.ok());
      ++placed[{position->segment.job_id, position->segment.host}];
    }
    for (const auto& a : allocations) placed[{a.job_id, a.host}] -= a.gpus;
    for (const auto& [place, left] : placed) EXPECT_EQ(left, 0);
    int by_host = 0;
    for (const auto& host : map.hosts()) by_host += map.ranks_on(host);
    EXPECT_EQ(by_host, total) << "a host appears once";
  }
}

uint32_t ip(const char* text) { return ntohl(inet_addr(text)); }

TEST(Network, PicksTheSubnetOfTheHosts) {
  const std::vector<Interface> own = {{"ib0", ip("10.9.0.5"), ip("255.255.0.0")},
                                      {"eth0", ip("192.168.3.7"), ip("255.255.255.0")},
                                      {"any", ip("10.9.0.6"), ip("255.0.0.0")}};
  EXPECT_EQ(choose_networks({ip("192.168.3.8"), ip("192.168.3.7")}, own), "192.168.3.0/24");
  EXPECT_EQ(choose_networks({ip("10.9.1.1"), ip("10.9.2.2")}, own), "10.9.0.0/16");
  EXPECT_EQ(choose_networks({ip("10.9.1.1"), ip("10.8.2.2")}, own), "10.0.0.0/8");
  EXPECT_EQ(choose_networks({ip("10.9.1.1"), ip("172.16.2.2")}, own), "10.9.1.0/24,172.16.2.0/24");
}

TEST(Network, UnknownHostsAreNamed) {
  const auto networks = networks_of_hosts({"no-such-host.invalid"});
  EXPECT_THAT(networks.status().message(), HasSubstr("no-such-host.invalid"));
}

TEST(Registration, FingerprintCommandOfOurTrainer) {
  EXPECT_THAT(default_fingerprint_command({"/x/flextrain-trainer", "train", "a/job.toml", "--x"}),
              ElementsAre("/x/flextrain-trainer", "fingerprint", "a/job.toml"));
  EXPECT_THAT(default_fingerprint_command({"python", "job.toml"}), ElementsAre());
  EXPECT_THAT(default_fingerprint_command({"flextrain-trainer", "train"}), ElementsAre());
  EXPECT_THAT(default_fingerprint_command({}), ElementsAre());
}

TEST(Registration, WhatACompanionInherits) {
  const auto kept =
      inheritable({"PATH=/bin", "SLURM_JOB_ID=1", "SLURM_CONF=/c", "SBATCH_X=1", "SPANK_A=1",
                   "OMPI_COMM_WORLD_RANK=0", "CUDA_VISIBLE_DEVICES=0", "FLEXTRAIN_CONTROLLER=h",
                   "FLEXTRAIN_CONTROL_DIR=/d", "BAD=\xff\xfe", "=x", "EMPTY=", "A=b=c"});
  EXPECT_EQ(kept, (std::map<std::string, std::string>{{"PATH", "/bin"},
                                                      {"SLURM_CONF", "/c"},
                                                      {"FLEXTRAIN_CONTROLLER", "h"},
                                                      {"EMPTY", ""},
                                                      {"A", "b=c"}}));
}

class Folder : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) {
    std::ofstream(dir + "/" + name) << text;
  }
  TempFolder folder;
  const std::string& dir = folder.path();
};

TEST_F(Folder, NumericsOfTheJobFile) {
  write("a.toml", "[training]\nnumerics = \"fp32\"\n");
  write("b.toml", "[training\n");
  EXPECT_EQ(numerics_of_command({"flextrain-trainer", "train", dir + "/a.toml"}), "fp32");
  EXPECT_EQ(numerics_of_command({"flextrain-trainer", "train", dir + "/b.toml"}), "exact");
  EXPECT_EQ(numerics_of_command({"flextrain-trainer", "train", dir + "/none.toml"}), "exact");
  // Ended the agent: toml++ asserts on it.
  write("c.toml", "[/x]\n");
  EXPECT_EQ(numerics_of_command({"flextrain-trainer", "train", dir + "/c.toml"}), "exact");
  EXPECT_EQ(numerics_of_command({"other", dir + "/a.toml"}), "exact");
  // Was ignored: fp32 on the command line, and its companions were refused.
  EXPECT_EQ(numerics_of_command(
                {"flextrain-trainer", "train", dir + "/b.toml", "--set", "training.numerics=fp32"}),
            "fp32");
}

TEST_F(Folder, ControlDirStateSurvives) {
  auto control = ControlDir::open(dir + "/c", {});
  ASSERT_TRUE(control.ok()) << control.status().to_string();
  AgentState state;
  EXPECT_EQ(control->load_state().last_sequence, 0);
  state.epoch = 3;
  state.last_sequence = 9;
  state.last_order_id = "o";
  state.last_report = protocol::ReportRequest{"o", true, "", {}, 4, {{1, "n1", 4, ""}}};
  state.layout = {{{1, "n1", 4, ""}}, {{"id", "p"}}};
  ASSERT_TRUE(control->save_state(state).ok());
  auto again = ControlDir::open(dir + "/c", {});
  const AgentState loaded = again->load_state();
  EXPECT_EQ(loaded.epoch, 3);
  EXPECT_EQ(loaded.last_sequence, 9);
  EXPECT_EQ(loaded.last_order_id, "o");
  EXPECT_EQ(loaded.last_report->gpus, 4);
  EXPECT_EQ(loaded.layout.allocations, state.layout.allocations);
  EXPECT_EQ(loaded.layout.plan, state.layout.plan);
  for (const char* text : {"", "{", "[]", "{\"epoch\":\"x\"}"}) {
    write("c/agent_state.json", text);
    EXPECT_EQ(again->load_state().last_sequence, 0) << text;
  }
}

TEST_F(Folder, ControlDirReadsTheTrainer) {
  auto control = ControlDir::open(dir + "/c", {});
  write("c/phases.jsonl", "{\"phase\":\"init\",\"time\":1.5}\nnonsense\n{\"phase\":\"lo");
  auto phases = control->new_phases();
  ASSERT_EQ(phases.size(), 1u);
  EXPECT_EQ(phases[0].phase, "init");
  EXPECT_EQ(phases[0].time, 1.5);
  std::ofstream(dir + "/c/phases.jsonl", std::ios::app) << "ad\",\"time\":2}\n";
  phases = control->new_phases();
  ASSERT_EQ(phases.size(), 1u) << "a half-written line is read when it is whole";
  EXPECT_EQ(phases[0].phase, "load");

  EXPECT_FALSE(control->new_progress().has_value());
  write("c/progress.json", "{\"step\":4,\"loss\":2.5,\"time\":7.5,\"state\":5}");
  const auto progress = control->new_progress();
  ASSERT_TRUE(progress.has_value());
  EXPECT_EQ(progress->message.step, 4);
  EXPECT_EQ(progress->time, 7.5);
  EXPECT_FALSE(control->new_progress().has_value()) << "nothing new";
  write("c/progress.json", "{\"step\":\"five\"}");
  EXPECT_FALSE(control->new_progress().has_value());
}

TEST_F(Folder, ControlDirPlan) {
  auto control = ControlDir::open(dir + "/c", {});
  ASSERT_TRUE(control->prepare_launch({{}, {{"id", "p"}}}).ok());
  EXPECT_TRUE(std::filesystem::exists(dir + "/c/plan.json"));
  ASSERT_TRUE(control->prepare_launch({{}, Json()}).ok());
  EXPECT_FALSE(std::filesystem::exists(dir + "/c/plan.json"));
}

TEST_F(Folder, AForeignControlDirIsRefused) {
  std::filesystem::create_directory(dir + "/open");
  ::chmod((dir + "/open").c_str(), 0777);
  EXPECT_EQ(ControlDir::open(dir + "/open", {}).status().code(), StatusCode::kPermissionDenied);
  std::filesystem::create_directory_symlink("/tmp", dir + "/link");
  EXPECT_FALSE(ControlDir::open(dir + "/link", {}).ok());
}

// It went wrong: `--control-dir .` in a job's folder removed the user's own plan.json and profile.
TEST_F(Folder, FilesThatNoAgentPutThereAreKept) {
  std::filesystem::create_directory(dir + "/mine");
  write("mine/plan.json", "{}");
  EXPECT_EQ(ControlDir::open(dir + "/mine", {}).status().code(), StatusCode::kAlreadyExists);
  EXPECT_TRUE(std::filesystem::exists(dir + "/mine/plan.json"));
  // Those of an agent go, once it has the lock.
  const auto control = ControlDir::open(dir + "/c", {});
  ASSERT_TRUE(control.ok());
  write("c/plan.json", "{}");
  const auto again = ControlDir::open(dir + "/c", {});
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_TRUE(std::filesystem::exists(dir + "/c/plan.json"));
  again->remove_former_launch();
  EXPECT_FALSE(std::filesystem::exists(dir + "/c/plan.json"));
}

// It went wrong: the end of a reader of the log (Ctrl-C reaches `tee` too) ended mpirun by SIGPIPE,
// in the middle of the checkpoint that the same Ctrl-C had asked for.
TEST(OutputRelay, AReaderThatLeavesEndsNobody) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {  // a process of its own: the relay turns stdout and stderr
    ::close(ends[0]);
    ::dup2(ends[1], STDOUT_FILENO);
    ::close(ends[1]);
    ::signal(SIGPIPE, SIG_IGN);
    bool written = true;
    {
      const OutputRelay relay;
      // Without the relay these fail once the reader has gone; more than a pipe holds.
      for (int line = 0; line < 100000; ++line) written = written && ::write(1, "line\n", 5) == 5;
    }
    ::_exit(written ? 7 : 8);
  }
  ::close(ends[1]);
  char text[5];
  EXPECT_EQ(::read(ends[0], text, sizeof text), 5);
  EXPECT_EQ(std::string(text, 5), "line\n");
  ::close(ends[0]);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << status;
}

TEST(ScaleTable, PlanForACount) {
  const Json table = {{"entries",
                       {{{"kept", true}, {"shape", {{"gpus", 2}}}, {"plan", {{"id", "two"}}}},
                        {{"kept", false}, {"shape", {{"gpus", 4}}}, {"plan", {{"id", "four"}}}}}}};
  EXPECT_EQ(plan_of_table(table, 2)["id"], "two");
  EXPECT_TRUE(plan_of_table(table, 4).is_null()) << "dropped entries are not used";
  EXPECT_TRUE(plan_of_table(table, 3).is_null());
  EXPECT_TRUE(plan_of_table(Json(), 2).is_null());
  EXPECT_TRUE(plan_of_table({{"entries", {{{"kept", 1}}}}}, 2).is_null());
}

TEST(Process, FirstLine) {
  EXPECT_EQ(*first_output_line({"/bin/sh", "-c", "echo ' a b '; echo c"}, 10), "a b");
  EXPECT_EQ(*first_output_line({"true"}, 10), "");
  EXPECT_EQ(first_output_line({"/bin/sh", "-c", "exit 4"}, 10).status().code(),
            StatusCode::kInternal);
  EXPECT_EQ(first_output_line({"sleep", "60"}, 1).status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(first_output_line({"no-such-program-here"}, 1).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace flextrain::agent
