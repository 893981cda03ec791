// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm_plugin/controller/companion_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "protocol/elastic_request.h"
#include "slurm_plugin/controller/table_view.h"

namespace flextrain::slurm_plugin {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

JobRecord base_job() {
  JobRecord job;
  job.job_id = 77;
  job.user_id = 1001;
  job.group_id = 1002;
  job.name = "llama";
  job.account = "lab";
  job.qos = "long";
  job.partition = "gpu";
  job.reservation = "course";
  job.features = "ib*2";
  job.gres_type = "a100";
  job.gpus_allocated = job.gpus_requested = 4;
  job.gpus_on_node = {{"n1", 2}, {"n2", 2}};
  job.cpus_on_node = {{"n1", 8}, {"n2", 8}};
  job.memory_per_node_mib = 32000;
  job.nodes_requested = 2;
  job.work_dir = "/home/a";
  return job;
}

protocol::RegisterRequest registration() {
  protocol::RegisterRequest request;
  request.agent_path = "/opt/flex train/agent";
  request.work_dir = "/home/a/run";
  request.fingerprint_command = {"flextrain-trainer", "fingerprint", "it's"};
  request.environment = {{"PATH", "/usr/bin"},
                         {"SLURM_JOB_ID", "77"},
                         {"SLURM_SPANK__SLURM_SPANK_OPTION_flextrain_elastic", "dp+pp"},
                         {"SBATCH_ACCOUNT", "x"}};
  request.rlimits = {{"NOFILE", 4096}};
  request.umask = 0027;
  return request;
}

TEST(CompanionRequest, DerivesFromTheBase) {
  const CompanionRequest request = make_companion_request(base_job(), registration(), {"n5", 3},
                                                          "abc", ControllerConfig{}, 1000);
  EXPECT_EQ(request.user_id, 1001u);
  EXPECT_EQ(request.group_id, 1002u);
  EXPECT_EQ(request.account, "lab");
  EXPECT_EQ(request.qos, "long");
  EXPECT_EQ(request.partition, "gpu");
  EXPECT_EQ(request.reservation, "course");
  EXPECT_EQ(request.node, "n5");
  EXPECT_EQ(request.features, "ib");
  EXPECT_EQ(request.gres, "gres:gpu:a100:3");
  EXPECT_EQ(request.cpus, 12);
  EXPECT_EQ(request.memory_mib, 48000);
  EXPECT_EQ(request.lease_seconds, 300);
  EXPECT_EQ(request.work_dir, "/home/a/run");
  EXPECT_EQ(request.umask, 0027);
  EXPECT_EQ(request.rlimits.at("NOFILE"), 4096);
  EXPECT_EQ(request.environment, std::vector<std::string>{"PATH=/usr/bin"});
  const auto tag = protocol::companion_from_comment(request.admin_comment);
  ASSERT_TRUE(tag.has_value());
  EXPECT_EQ(tag->base_job_id, 77u);
  EXPECT_EQ(tag->intent_id, "abc");
}

TEST(CompanionRequest, ConfigurationChoosesPartitionAndQos) {
  ControllerConfig config;
  config.companion_partition = "scavenge";
  config.companion_qos = "low";
  const CompanionRequest request =
      make_companion_request(base_job(), registration(), {"n5", 1}, "i", config, 0);
  EXPECT_EQ(request.partition, "scavenge");
  EXPECT_EQ(request.qos, "low");
}

TEST(CompanionRequest, LeaseEndsWithTheBasesOwnLimit) {
  JobRecord base = base_job();
  base.end_time = 1100;
  const auto lease = [&](int64_t now) {
    return make_companion_request(base, registration(), {"n5", 1}, "i", ControllerConfig{}, now)
        .lease_seconds;
  };
  EXPECT_EQ(lease(1000), 100);
  EXPECT_EQ(lease(1090), 60);
  EXPECT_EQ(lease(0), 300);
}

TEST(CompanionRequest, ScriptIsOneQuotedExec) {
  const std::string script = companion_script(base_job(), registration(), "abc");
  EXPECT_EQ(script,
            "#!/bin/sh\nexec '/opt/flex train/agent' companion --base-job 77 --intent 'abc' -- "
            "'flextrain-trainer' 'fingerprint' 'it'\\''s'\n");
}

TEST(Lease, IsExtendedInWholeMinutesAndNeverPastTheCap) {
  const ControllerConfig config;  // lease 300, renew 120
  struct Case {
    int64_t now, start, end, cap, expected;
  };
  const Case cases[] = {
      {100, 0, 300, 0, 0},          // not started
      {1100, 1000, 1300, 0, 0},     // 200 s left
      {1180, 1000, 1300, 0, 0},     // exactly 120 s left
      {1181, 1000, 1300, 0, 1540},  // 1481 rounded up to whole minutes
      {1181, 1000, 1300, 1320, 0},  // cap rounds down to 1300
      {1181, 1000, 1300, 1365, 1360},
      {1181, 1000, 1300, 1200, 0},  // wanted sooner than it ends: as it is
      {1290, 1000, 1300, 9999, 1600},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(extended_lease(c.now, c.start, c.end, c.cap, config), c.expected)
        << c.now << " cap " << c.cap;
  }
}

Json entry(int gpus, double speed, bool kept) {
  return {{"shape", {{"gpus", gpus}}},
          {"tokens_per_second", speed},
          {"kept", kept},
          {"plan", {{"id", "plan-" + std::to_string(gpus)}}}};
}

TEST(ScaleTable, KeepsKeptEntriesAndEveryPlan) {
  Json unfit = entry(6, 900, false);  // more than a rank's memory: nothing may run by its Plan
  unfit["fits"] = false;
  const Json table = {
      {"entries", {entry(4, 300, true), entry(2, 200, true), entry(3, 210, false), unfit}}};
  const auto view = read_scale_table(table);
  ASSERT_TRUE(view.ok()) << view.status().message();
  ASSERT_EQ(view->entries.size(), 2u);
  EXPECT_EQ(view->entries[0].gpus, 2);
  EXPECT_EQ(view->entries[1].gpus, 4);
  EXPECT_EQ(view->plan_for(3).at("id"), "plan-3");
  EXPECT_TRUE(view->plan_for(5).is_null());
  EXPECT_TRUE(view->plan_for(6).is_null());
  EXPECT_EQ(view->best_within(3)->gpus, 2);
  EXPECT_FALSE(view->best_within(1).has_value());
}

TEST(ScaleTable, RefusesNonsense) {
  for (const char* text :
       {"null", "[]", "{}", R"({"entries": 1})", R"({"entries": [1]})", R"({"entries": [{}]})",
        R"({"entries": [{"shape": {"gpus": 0}, "tokens_per_second": 1, "plan": {}}]})",
        R"({"entries": [{"shape": {"gpus": "x"}, "tokens_per_second": 1, "plan": {}}]})",
        R"({"entries": [{"shape": {"gpus": 1}, "tokens_per_second": -1, "plan": {}}]})"}) {
    EXPECT_FALSE(read_scale_table(Json::parse(text)).ok()) << text;
  }
}

}  // namespace
}  // namespace flextrain::slurm_plugin
