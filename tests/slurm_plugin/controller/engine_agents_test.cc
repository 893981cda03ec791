// SPDX-License-Identifier: GPL-2.0-or-later
// Who may say what: identities, owners, nonsense.
#include "engine_fixture.h"

namespace flextrain::slurm_plugin {
namespace {

using ::testing::HasSubstr;

TEST_F(EngineTest, AnotherUserCanNeitherSpeakNorListenForAJob) {
  begin(2);
  const uint32_t id = steady_base(1001);
  TestAgent agent(rig, id);
  const auto identity = agent.identity();
  const Json poll = protocol::to_json(protocol::PollRequest{});
  protocol::RegisterRequest registration;
  registration.allocations = agent.own();
  for (const uid_t stranger : {uid_t{2002}, uid_t{65534}}) {
    for (const auto& [type, body] :
         {std::pair{protocol::kPoll, poll},
          std::pair{protocol::kRegister, protocol::to_json(registration)},
          std::pair{protocol::kProgress, protocol::to_json(protocol::ProgressRequest{})},
          std::pair{protocol::kReport, protocol::to_json(protocol::ReportRequest{})},
          std::pair{protocol::kScaleTable,
                    protocol::to_json(protocol::ScaleTableRequest{scale_table({8}), {}})},
          std::pair{protocol::kBye, protocol::to_json(protocol::ByeRequest{})}}) {
      const auto reply = rig.send(type, identity, body, stranger);
      ASSERT_TRUE(reply->answered()) << type;
      EXPECT_THAT(reply->answer_->error, HasSubstr("not yours")) << type;
    }
  }
  EXPECT_EQ(rig.state(id), "steady");
  EXPECT_EQ(rig.job(id)->table.entries.size(), 4u);
  // Root and SlurmUser may.
  for (const uid_t admin : {uid_t{0}, Rig::kSlurmUser}) {
    EXPECT_FALSE(rig.send(protocol::kPoll, identity, poll, admin)->answered());
  }
  // Nor can a stranger's job pose as a companion.
  rig.step();
  ASSERT_EQ(rig.state(id), "companions-pending");
  const JobRecord companion = rig.cluster.companions().front();
  protocol::RegisterRequest pose;
  pose.role = protocol::AgentRole::kCompanion;
  pose.base_job_id = id;
  pose.intent_id = protocol::companion_from_comment(companion.admin_comment)->intent_id;
  pose.fingerprint = "cpu/avx2";
  pose.allocations = {{companion.job_id, "evil", 8, "10.6.6.6"}};
  const auto reply =
      rig.send(protocol::kRegister, {"fake", companion.job_id, companion.submit_time, 0},
               protocol::to_json(pose), 2002);
  ASSERT_TRUE(reply->answered());
  EXPECT_FALSE(reply->answer_->body.value("elastic", false));
  EXPECT_EQ(rig.state(id), "companions-pending");
}

TEST_F(EngineTest, IdentityMustAgreeInAllFour) {
  begin(2);
  const uint32_t id = steady_base(1001);
  const auto good = TestAgent(rig, id).identity();
  for (int field = 0; field < 4; ++field) {
    auto other = good;
    if (field == 0) other.cluster = "elsewhere";
    if (field == 1) other.job_id += 1000;
    if (field == 2) other.submit_time += 1;
    if (field == 3) other.restart_count += 1;
    for (const auto type : {protocol::kPoll, protocol::kBye}) {
      const auto reply = rig.send(type, other, Json::object(), 1001);
      ASSERT_TRUE(reply->answered());
      EXPECT_NE(reply->answer_->error, "") << field;
    }
    protocol::RegisterRequest registration;
    registration.allocations = {{other.job_id, "n1", 8, ""}};
    EXPECT_NE(
        rig.send(protocol::kRegister, other, protocol::to_json(registration), 1001)->answer_->error,
        "")
        << field;
  }
  auto upper = good;
  upper.cluster = "FAKE";  // Slurm compares cluster names in lower case
  EXPECT_FALSE(rig.send(protocol::kPoll, upper, Json::object(), 1001)->answered());
}

TEST_F(EngineTest, JobsThatAreNotElasticAreToldWhy) {
  begin(2);
  const uint32_t rigid = rig.submit(1001, 8, 1, false);
  rig.step(1);
  const auto reply = TestAgent(rig, rigid).register_base();
  ASSERT_TRUE(reply->answered());
  EXPECT_EQ(reply->answer_->error, "");
  EXPECT_FALSE(reply->answer_->body.at("elastic").get<bool>());
  EXPECT_THAT(reply->answer_->body.at("reason").get<std::string>(), HasSubstr("--elastic"));
}

TEST_F(EngineTest, AnAgentMayRegisterBeforeTheFirstLook) {
  begin(2);
  const uint32_t id = rig.submit(1001, 8);
  TestAgent agent(rig, id);
  const auto reply = agent.register_base();
  EXPECT_TRUE(reply->answer_->body.at("elastic").get<bool>());
  EXPECT_EQ(reply->answer_->body.at("max_gpus").get<int>(), 32);
  EXPECT_EQ(rig.state(id), "steady");
}

TEST_F(EngineTest, NonsenseIsRefusedAndChangesNothing) {
  begin(2);
  const uint32_t id = steady_base();
  TestAgent agent(rig, id);
  EXPECT_NE(agent.send("dance", Json::object())->answer_->error, "");
  EXPECT_NE(agent.send(protocol::kScaleTable, {{"table", 5}, {"profile", nullptr}})->answer_->error,
            "");
  EXPECT_NE(agent.send(protocol::kReport, Json::array())->answer_->error, "");
  protocol::RegisterRequest foreign;
  foreign.allocations = {{id + 1, "n2", 8, ""}};
  EXPECT_NE(agent.send(protocol::kRegister, protocol::to_json(foreign))->answer_->error, "");
  EXPECT_EQ(rig.state(id), "steady");
  EXPECT_EQ(held(id), 8);
}

TEST_F(EngineTest, ManyAgentsAreAskedToSpeakSeldom) {
  begin(100);
  std::vector<uint32_t> ids;
  for (int i = 0; i < 100; ++i) ids.push_back(rig.submit(1001, 8));
  const auto registered = [&](uint32_t id) {
    return protocol::from_json<protocol::RegisterResponse>(
               TestAgent(rig, id).register_base()->answer_->body)
        .value();
  };
  const auto first = registered(ids.front());
  EXPECT_EQ(first.poll_seconds, 25);
  EXPECT_EQ(first.progress_seconds, 0);
  rig.step(1);  // all are known
  TestAgent agent(rig, ids.back());
  const auto last = registered(ids.back());
  EXPECT_EQ(last.poll_seconds, 25);
  EXPECT_EQ(last.progress_seconds, 50);
  EXPECT_EQ(
      agent.send(protocol::kPoll, Json{{"progress", {{"step", "x"}}}})->answer_->error.empty(),
      false);
  protocol::ProgressRequest progress;
  progress.step = 12;
  progress.total_steps = 1000;
  progress.gpus = 8;
  progress.state = protocol::kTrainerRunning;
  const auto poll =
      agent.send(protocol::kPoll, protocol::to_json(protocol::PollRequest{0, progress}));
  EXPECT_FALSE(poll->answered());
  ASSERT_TRUE(rig.job(ids.back())->progress);
  EXPECT_EQ(rig.job(ids.back())->progress->step, 12);
  // A second poll ends the first; its answer brings the pace.
  agent.poll();
  ASSERT_TRUE(poll->answered());
  EXPECT_EQ(order_of(*poll).progress_seconds, 50);
}

TEST_F(EngineTest, AJobThatHasBecomeAbleToGrowIsLookedAtSoon) {
  begin(1);
  EXPECT_TRUE(rig.engine->pressing()) << "nothing is known yet";
  const uint32_t id = steady_base();
  rig.step();
  EXPECT_FALSE(rig.engine->pressing()) << "no node is free: nothing lent, nothing new";
  TestAgent(rig, id).table({8, 16});
  EXPECT_TRUE(rig.engine->pressing());
  rig.step();
  EXPECT_FALSE(rig.engine->pressing());
}

// Between rounds that are far apart a silent agent is noticed without a word with slurmctld.
TEST_F(EngineTest, WhatNeedsNoClusterIsDoneBetweenRounds) {
  begin(2);
  const uint32_t id = steady_base();
  rig.engine->tend();
  EXPECT_EQ(rig.engine->live()->diag.at("agents"), 1);
  int calls = 0;
  rig.cluster.on_call = [&](const char*) { ++calls; };
  TestAgent(rig, id).progress(7, 100, 1, 8);
  rig.cluster.advance(1000);
  rig.engine->tend();
  EXPECT_EQ(rig.engine->live()->diag.at("agents"), 0);
  EXPECT_FALSE(rig.job(id)->row.registered);
  EXPECT_EQ(rig.store->queries().progress(rig.job(id)->row.key).value().step, 7);
  EXPECT_EQ(calls, 0);
}

}  // namespace
}  // namespace flextrain::slurm_plugin
