// SPDX-License-Identifier: MIT
// Each fault that doctor knows, one at a time, on an installation that is otherwise fine.
#include "cli/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/fake_environment.h"

namespace flextrain::cli {
namespace {

using ::testing::HasSubstr;

constexpr const char* kConfig =
    "Configuration data as of 2026-11-29T18:20:05\n"
    "GresTypes               = gpu\n"
    "JobSubmitPlugins        = lua,flextrain\n"
    "PlugStackConfig         = (null)\n"
    "PluginDir               = /usr/lib/slurm\n"
    "PreemptType             = preempt/none\n"
    "SchedulerParameters     = bf_interval=2,batch_sched_delay=0\n"
    "SchedulerType           = sched/flextrain\n"
    "SLURM_CONF              = /etc/slurm/slurm.conf\n"
    "SLURM_VERSION           = 22.05.8\n"
    "SlurmctldHost[0]        = ctl(10.0.0.1)\n"
    "SlurmctldParameters     = (null)\n";

class Doctor : public ::testing::Test {
 protected:
  Doctor() {
    auto& commands = environment_.commands;
    commands["scontrol --version"] = {0, "slurm-wlm 22.05.8\n"};
    commands["scontrol show config"] = {0, kConfig};
    commands["hostname -s"] = {0, "ctl\n"};
    commands["sbatch --help"] = {0, "Usage: sbatch …\n      --elastic[=MODE]  grow\n"};
    commands["scontrol -o show partition"] = {
        0,
        "PartitionName=gpu AllowGroups=ALL GraceTime=0 State=UP TotalNodes=2\n"
        "PartitionName=lend GraceTime=20 State=UP\nPartitionName=old GraceTime=0 State=DOWN\n"};
    commands["scontrol -o show node"] = {0,
                                         "NodeName=n1 Gres=gpu:8 State=IDLE\n"
                                         "NodeName=n2 Gres=gpu:8 State=MIXED\n"};
    commands["flextrain-agent --help"] = {0, ""};
    commands["flextrain-trainer --help"] = {0, ""};
    for (const char* name : {"sched", "job_submit", "spank"})
      environment_.files[std::string("/usr/lib/slurm/") + name + "_flextrain.so"] = "";
    environment_.files["/etc/slurm/flextrain.conf"] = "Enabled=yes\n";
    environment_.files["/etc/slurm/plugstack.conf"] = "optional spank_flextrain.so\n";
    environment_.answers["diag"] = {
        {"rows",
         {{{"elastic", true}, {"last_tick", environment_.time - 5}, {"tick_seconds", 10}}}}};
    environment_.answers["jobs"] = {{"rows", {{{"shrink_overhead_seconds", 25.5}}}}};
    environment_.root = true;
    environment_.facts["/var/lib/flextrain"] = {true, true, 0700, 0, 4096, int64_t{1} << 30};
    environment_.facts["/var/lib/flextrain/flextrain.db"] = {true, true, 0600,
                                                             0,    4096, int64_t{1} << 30};
  }
  void config(const std::string& from, const std::string& to) {
    std::string text = environment_.commands["scontrol show config"].output;
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos);
    environment_.commands["scontrol show config"].output = text.replace(at, from.size(), to);
  }
  AppResult run() { return run_sflex({"doctor"}, environment_); }
  void expect_fault(const std::string& text, const std::string& mend) {
    const AppResult result = run();
    EXPECT_EQ(result.exit_code, 1) << result.out;
    EXPECT_THAT(result.out, HasSubstr("FAULT"));
    EXPECT_THAT(result.out, HasSubstr(text));
    EXPECT_THAT(result.out, HasSubstr(mend));
    EXPECT_THAT(result.out, HasSubstr("\n1 fault,")) << result.out;
  }
  void expect_fine_but(const std::string& text) {
    const AppResult result = run();
    EXPECT_EQ(result.exit_code, 0) << result.out;
    EXPECT_THAT(result.out, HasSubstr(text));
  }

  FakeEnvironment environment_;
};

TEST_F(Doctor, Healthy) {
  const AppResult result = run();
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, HasSubstr("no fault, no warning"));
}

TEST_F(Doctor, Json) {
  const AppResult result = run_sflex({"doctor", "--json"}, environment_);
  EXPECT_EQ(result.exit_code, 0);
  const Json body = Json::parse(result.out);
  ASSERT_GT(body["rows"].size(), 10u);
  for (const Json& row : body["rows"]) EXPECT_EQ(row["level"], "ok");
}

TEST_F(Doctor, OtherScheduler) {
  config("sched/flextrain", "sched/backfill");
  expect_fault("SchedulerType is sched/backfill", "set SchedulerType=sched/flextrain");
}
TEST_F(Doctor, NoJobSubmit) {
  config("lua,flextrain", "lua");
  expect_fault("JobSubmitPlugins does not name flextrain", "add flextrain");
}
TEST_F(Doctor, PluginMissing) {
  environment_.files.erase("/usr/lib/slurm/job_submit_flextrain.so");
  expect_fault("lacks job_submit_flextrain.so", "install");
}
TEST_F(Doctor, OnlyTheControllersHostNeedsAllPlugins) {
  environment_.files.erase("/usr/lib/slurm/job_submit_flextrain.so");
  environment_.commands["hostname -s"] = {0, "login1\n"};
  expect_fine_but("1 of 1 are in /usr/lib/slurm");
}
TEST_F(Doctor, SbatchWithoutTheFlag) {
  environment_.commands["sbatch --help"] = {0, "Usage: sbatch …\n"};
  expect_fault("sbatch does not know --elastic", "optional spank_flextrain.so");
}
TEST_F(Doctor, RequiredPlugin) {
  environment_.files["/etc/slurm/plugstack.conf"] = "required spank_flextrain.so # x\n";
  expect_fine_but("write 'optional' instead");
}
TEST_F(Doctor, BrokenConfiguration) {
  environment_.files["/etc/slurm/flextrain.conf"] = "Enabled=yes\nnonsense\n";
  expect_fault("flextrain.conf:2", "mend the line");
}
TEST_F(Doctor, ConfigurationSwitchedOff) {
  environment_.files["/etc/slurm/flextrain.conf"] = "Enabled=no\n";
  expect_fault("says Enabled=no", "Enabled=yes");
}
TEST_F(Doctor, NoConfigurationIsFine) {
  environment_.files.erase("/etc/slurm/flextrain.conf");
  expect_fine_but("every key has its default");
}
TEST_F(Doctor, Munge) {
  environment_.munge = unavailable("munge cannot encode a credential");
  expect_fault("munge cannot encode", "start munged");
}
TEST_F(Doctor, ControllerAway) {
  environment_.answers.clear();
  expect_fault("cannot be asked at ctl:6822", "slurmctld's log");
}
TEST_F(Doctor, ControllerOff) {
  environment_.answers["diag"] = {
      {"rows", {{{"elastic", false}, {"elastic_reason", "flextrain.conf:3: bad Gate"}}}}};
  expect_fault("elasticity is off: flextrain.conf:3: bad Gate", "scontrol reconfigure");
}
TEST_F(Doctor, ControllerStuck) {
  environment_.answers["diag"]["rows"][0]["last_tick"] = environment_.time - 61;
  expect_fault("its last tick was 61 s ago", "slurmctld's log");
  environment_.answers["diag"]["rows"][0]["rest_seconds"] = 1.5;  // a long queue, nothing lent
  expect_fine_but("it answers");
}
TEST_F(Doctor, ControllersErrors) {
  environment_.answers["diag"]["rows"][0]["last_error"] = "storing decisions: disk full";
  environment_.answers["diag"]["rows"][0]["last_error_time"] = environment_.time - 30;
  environment_.answers["diag"]["rows"][0]["database_note"] = "moved aside";
  expect_fine_but("30 s ago: storing decisions: disk full");
  expect_fine_but("moved aside");
}
TEST_F(Doctor, DatabaseFolder) {
  environment_.facts.erase("/var/lib/flextrain");
  expect_fault("/var/lib/flextrain does not exist", "create it");
}
TEST_F(Doctor, DatabaseElsewhere) {
  environment_.files["/etc/slurm/flextrain.conf"] = "DatabasePath=/srv/f/x.db\n";
  expect_fault("/srv/f does not exist", "DatabasePath");
}
TEST_F(Doctor, DatabaseReadableByAll) {
  environment_.facts["/var/lib/flextrain/flextrain.db"].mode = 0644;
  expect_fine_but("chmod 600");
}
TEST_F(Doctor, DatabaseDiskFull) {
  environment_.facts["/var/lib/flextrain/flextrain.db"].free_bytes = 1 << 20;
  expect_fine_but("1M free");
}
TEST_F(Doctor, UnknownPartition) {
  environment_.files["/etc/slurm/flextrain.conf"] = "Partitions=gpu,big\n";
  expect_fault("Partitions names 'big', which does not exist", "mend Partitions");
}
TEST_F(Doctor, PartitionDown) {
  environment_.files["/etc/slurm/flextrain.conf"] = "Partitions=old\n";
  expect_fine_but("partition old is DOWN");
}
TEST_F(Doctor, NoGres) {
  config("= gpu", "= nic");
  expect_fault("GresTypes does not name gpu", "GresTypes=gpu");
}
TEST_F(Doctor, NoGpuNodes) {
  environment_.commands["scontrol -o show node"] = {0, "NodeName=n1 Gres=(null) State=IDLE\n"};
  expect_fault("no node has Gres=gpu", "gres.conf");
}
TEST_F(Doctor, NodesDown) {
  environment_.commands["scontrol -o show node"].output += "NodeName=n3 Gres=gpu:8 State=DOWN*\n";
  expect_fine_but("1 of 3 GPU nodes are down");
}
TEST_F(Doctor, PreemptableCompanions) {
  environment_.files["/etc/slurm/flextrain.conf"] =
      "CompanionPreemptable=yes\nCompanionPartition=lend\n";
  config("preempt/none", "preempt/partition_prio");
  config("SlurmctldParameters     = (null)", "SlurmctldParameters = preempt_send_user_signal");
  expect_fault("GraceTime of lend is 20 s, but a shrink took up to 25.5 s", "set GraceTime=44");
  environment_.answers["jobs"]["rows"][0]["shrink_overhead_seconds"] = 12;
  expect_fine_but("preemptable and told in time");
  config("preempt_send_user_signal", "idle_on_node_suspend");
  expect_fault("are not told", "preempt_send_user_signal");
}
TEST_F(Doctor, PreemptionOff) {
  environment_.files["/etc/slurm/flextrain.conf"] =
      "CompanionPreemptable=yes\nCompanionPartition=lend\n";
  environment_.answers["jobs"]["rows"] = Json::array();
  config("SlurmctldParameters     = (null)", "SlurmctldParameters = preempt_send_user_signal");
  expect_fault("PreemptType is none", "partition_prio");
}
TEST_F(Doctor, VersionsDiffer) {
  environment_.commands["scontrol --version"] = {0, "slurm-wlm 23.11.4\n"};
  expect_fine_but("the commands are 23.11.4, slurmctld is 22.05.8");
}
TEST_F(Doctor, ProgramsMissing) {
  environment_.commands.erase("flextrain-agent --help");
  expect_fine_but("flextrain-agent is not in PATH");
}

TEST_F(Doctor, SlurmctldDownReadsTheFile) {
  environment_.commands["scontrol show config"] = {
      1, "slurm_load_ctl_conf error: Unable to contact slurm controller (connect failure)\n"};
  environment_.answers.clear();
  environment_.variables["SLURM_CONF"] = "/srv/slurm.conf";
  environment_.files["/srv/slurm.conf"] =
      "SchedulerType=sched/backfill # not ours\nSlurmctldHost=ctl\n";
  const AppResult result = run();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, HasSubstr("Unable to contact slurm controller"));
  EXPECT_THAT(result.out, HasSubstr("start slurmctld"));
  EXPECT_THAT(result.out, HasSubstr("SchedulerType is sched/backfill"));
}

TEST_F(Doctor, NothingInstalledAtAll) {
  FakeEnvironment bare;
  bare.munge = unavailable("no munged");
  const AppResult result = run_sflex({"doctor"}, bare);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, HasSubstr("scontrol is not in PATH"));
}

}  // namespace
}  // namespace flextrain::cli
