// SPDX-License-Identifier: GPL-2.0-or-later
// Jobs that are held back: paused by people, left alone after failures, in a partition that is off.
#include "engine_fixture.h"

namespace flextrain::slurm_plugin {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class EngineCommands : public EngineTest {
 protected:
  std::shared_ptr<TestReply> say(const std::string& action, uint32_t job, uid_t uid) {
    auto reply = rig.send(protocol::kCommand, {},
                          protocol::to_json(protocol::CommandRequest{action, job}), uid);
    EXPECT_TRUE(reply->answered());
    return reply;
  }
  static std::string message(const TestReply& reply) {
    return reply.answer_->error.empty() ? reply.answer_->body.at("message").get<std::string>()
                                        : "refused: " + reply.answer_->error;
  }
  // One growth that the agent rolls back.
  void fail_once(uint32_t id) {
    TestAgent agent(rig, id);
    const auto poll = agent.poll(1000);
    rig.step(10);
    ASSERT_EQ(rig.state(id), "companions-pending");
    register_companions();
    const auto order = agent.poll(0);
    ASSERT_TRUE(order->answered());
    agent.report(order_of(*order).order_id, false, agent.own(), 0, "mpirun ended with 205");
    rig.step(1);
    ASSERT_EQ(rig.state(id), "steady");
  }
  // Until the job's pause after a failure is over; its agent stays alive.
  void wait_out(uint32_t id, int64_t seconds) {
    TestAgent agent(rig, id);
    const int64_t end = rig.cluster.now() + seconds;
    while (rig.cluster.now() < end && rig.state(id) == "steady") {
      agent.progress(1, 1'000'000, 1, 8);
      rig.cluster.advance(10);
    }
  }
  void no_growth_for(uint32_t id, int64_t seconds) {
    TestAgent agent(rig, id);
    for (int64_t waited = 0; waited < seconds; waited += 30) {
      agent.progress(1, 1'000'000, 1, 8);
      rig.step(30);
      ASSERT_EQ(rig.state(id), "steady");
    }
  }
  store::DecisionRow newest(uint32_t id) {
    return rig.store->queries().decisions({.job_ids = {id}})->back();
  }
};

TEST_F(EngineCommands, AJobThatFailedThriceIsLeftAloneUntilItsOwnerResumesIt) {
  begin(2);
  const uint32_t id = steady_base();
  for (const int64_t pause : {0, 60, 120}) {
    wait_out(id, pause);
    fail_once(id);
  }
  EXPECT_EQ(rig.job(id)->row.failures, 3);
  no_growth_for(id, 4000);  // the longest back-off is 3840 s
  EXPECT_EQ(newest(id).rule, "left-alone");
  EXPECT_THAT(newest(id).reason, HasSubstr("sflex resume"));
  EXPECT_EQ(rig.engine->live()->diag.at("left_alone_jobs"), 1);
  // Also over a restart of slurmctld.
  rig.start();
  TestAgent(rig, id).register_base();
  no_growth_for(id, 60);
  EXPECT_EQ(newest(id).rule, "left-alone");
  EXPECT_THAT(message(*say("resume", id, 2002)), HasSubstr("refused"));  // not his
  EXPECT_THAT(message(*say("resume", id, 1001)), HasSubstr("may grow again"));
  EXPECT_EQ(newest(id).kind, "resume");
  EXPECT_THAT(newest(id).reason, HasSubstr("user1001 (uid 1001)"));
  EXPECT_DOUBLE_EQ(newest(id).inputs.at("uid"), 1001);
  rig.step(1);
  EXPECT_EQ(rig.state(id), "companions-pending");
}

TEST_F(EngineCommands, ASuccessResetsTheCount) {
  begin(2);
  const uint32_t id = steady_base();
  fail_once(id);
  wait_out(id, 60);
  fail_once(id);
  wait_out(id, 120);
  grow(id);
  EXPECT_EQ(rig.job(id)->row.failures, 0);
}

TEST_F(EngineCommands, ZeroMeansNeverLeftAlone) {
  rig.config.max_scaling_failures = 0;
  begin(2);
  const uint32_t id = steady_base();
  for (const int64_t pause : {0, 60, 120, 240}) {
    wait_out(id, pause);
    fail_once(id);
  }
  EXPECT_EQ(newest(id).rule, "failure-pause");
}

// The agent says bye when the training is done; it did not fail.
TEST_F(EngineCommands, AGrowthCutShortByTheEndOfTheTrainingIsNoFailure) {
  begin(2);
  const uint32_t id = steady_base();
  rig.step(10);
  ASSERT_EQ(rig.state(id), "companions-pending");
  TestAgent(rig, id).bye(0);
  EXPECT_EQ(rig.job(id)->row.failures, 0);
  TestAgent(rig, id).register_base();
  TestAgent(rig, id).table({8, 16});
  rig.step(10);
  ASSERT_EQ(rig.state(id), "companions-pending");
  TestAgent(rig, id).bye(70);
  EXPECT_EQ(rig.job(id)->row.failures, 1);
}

TEST_F(EngineCommands, APausedJobKeepsItsSizeAndGivesBackWhenAsked) {
  begin(4);
  const uint32_t id = steady_base();
  rig.config.policy.max_growth = 3;
  rig.engine->set_config(rig.config);
  grow(id);
  ASSERT_EQ(held(id), 24);
  rig.config.policy.max_growth = 4;
  rig.engine->set_config(rig.config);
  EXPECT_THAT(message(*say("pause", id, 1001)), HasSubstr("no growth until resumed"));
  EXPECT_THAT(message(*say("pause", id, 1001)), HasSubstr("paused by user1001 before"));
  TestAgent agent(rig, id);
  for (int n = 0; n < 6; ++n) {
    agent.progress(1, 1'000'000, 1, 24);
    rig.step(10);
    ASSERT_EQ(rig.state(id), "steady");
  }
  EXPECT_EQ(held(id), 24);
  EXPECT_EQ(newest(id).rule, "paused");
  const auto poll = agent.poll(1);
  rig.submit(2002, 16, 2, false);
  rig.step(1);
  EXPECT_EQ(rig.state(id), "shrinking");
  EXPECT_TRUE(poll->answered());
}

TEST_F(EngineCommands, APauseOutlivesARestartAndARequeue) {
  begin(2);
  const uint32_t id = steady_base();
  say("pause", id, 1001);
  rig.start();
  TestAgent(rig, id).register_base();
  no_growth_for(id, 60);
  rig.cluster.requeue(id);
  rig.step(1);
  rig.step(1);
  TestAgent again(rig, id);
  again.register_base();
  again.table({8, 16});
  no_growth_for(id, 60);
  EXPECT_EQ(newest(id).rule, "paused");
  say("resume", id, 1001);
  rig.step(1);
  EXPECT_EQ(rig.state(id), "companions-pending");
  EXPECT_THAT(rig.store->queries().holds().value(), IsEmpty());
}

TEST_F(EngineCommands, TheOwnerCannotLiftAnOperatorsPause) {
  begin(2);
  const uint32_t id = steady_base();
  say("pause", id, 1001);
  EXPECT_THAT(message(*say("pause", id, 0)), HasSubstr("no growth"));  // replaces the owner's
  EXPECT_THAT(message(*say("resume", id, 1001)), HasSubstr("paused by the operator (root)"));
  EXPECT_THAT(message(*say("resume", id, Rig::kSlurmUser)), HasSubstr("may grow again"));
  rig.step(1);
  EXPECT_EQ(rig.state(id), "companions-pending");
}

TEST_F(EngineCommands, AllIsForOperatorsAndLeavesTheOwnersPausesAlone) {
  begin(4);
  const uint32_t a = steady_base(1001), b = steady_base(1002);
  EXPECT_THAT(message(*say("pause", 0, 1001)), HasSubstr("only root and SlurmUser"));
  say("pause", a, 1001);
  say("pause", 0, 0);
  rig.start();
  for (const uint32_t id : {a, b}) TestAgent(rig, id).register_base();
  no_growth_for(b, 60);
  EXPECT_EQ(newest(b).rule, "paused");
  EXPECT_THAT(newest(b).reason, HasSubstr("all jobs"));
  EXPECT_THAT(message(*say("resume", b, 1002)), HasSubstr("all jobs are paused by root"));
  EXPECT_THAT(message(*say("resume", 0, 1002)), HasSubstr("only root and SlurmUser"));
  EXPECT_THAT(message(*say("resume", 0, 0)), HasSubstr("but the 1 that were paused one by one"));
  rig.step(1);
  EXPECT_EQ(rig.state(b), "companions-pending");
  EXPECT_EQ(rig.state(a), "steady");
  const auto audit = rig.store->queries().decisions({}).value();
  EXPECT_EQ(std::count_if(audit.begin(), audit.end(),
                          [](const auto& row) { return row.rule == "command"; }),
            3);
}

// slurmctld once began with Enabled=no, or a broken flextrain.conf, and left what an earlier run
// had out to its leases.
TEST_F(EngineCommands, StartedSwitchedOffWhatIsOutComesBackInGoodOrder) {
  begin(3);
  const uint32_t id = steady_base();
  grow(id);
  rig.config.enabled = false;
  rig.start();
  rig.step(1);
  EXPECT_EQ(rig.state(id), "shrinking");
  EXPECT_THAT(rig.cluster.cancelled(), IsEmpty());  // the agent has its say first
  TestAgent agent(rig, id);
  EXPECT_EQ(agent.register_base()->answer_->error, "");
  const auto poll = agent.poll(0);
  ASSERT_TRUE(poll->answered());
  const protocol::Order order = order_of(*poll);
  EXPECT_EQ(order.kind, protocol::OrderKind::kShrink);
  EXPECT_EQ(gpus_of(order.allocations), 8);
  agent.report(order.order_id, true, order.allocations, 0);
  agent.report(order.order_id, true, order.allocations, 4);
  rig.step(1);
  EXPECT_EQ(held(id), 8);
  EXPECT_THAT(rig.cluster.companions(), IsEmpty());
  EXPECT_EQ(rig.scalings().back().outcome, "done");
}

TEST_F(EngineCommands, StartedSwitchedOffAndNoAgentComesTheCompanionsGoAllTheSame) {
  begin(3);
  grow(steady_base());
  rig.config.enabled = false;
  rig.start();
  for (int64_t waited = 0; waited <= rig.config.shrink_timeout + 20; waited += 10) rig.step(10);
  EXPECT_THAT(rig.cluster.companions(), IsEmpty());
}

TEST_F(EngineCommands, TheWatchdogsHoldStopsGrowthAndNothingElse) {
  begin(3);
  const uint32_t id = steady_base();
  rig.config.policy.max_growth = 2;
  rig.engine->set_config(rig.config);
  grow(id);
  rig.config.policy.max_growth = 4;
  rig.engine->set_config(rig.config);
  rig.engine->hold_all({"watchdog", "a tick took 31.0 s"});
  rig.step(10);
  EXPECT_EQ(rig.state(id), "steady");
  EXPECT_EQ(held(id), 16);
  EXPECT_EQ(newest(id).rule, "watchdog");
  rig.submit(2002, 16, 2, false);
  rig.step(1);
  EXPECT_EQ(rig.state(id), "shrinking");
}

TEST_F(EngineCommands, NonsenseIsRefused) {
  begin(1);
  EXPECT_THAT(message(*say("pause", 4711, 0)), HasSubstr("no running elastic job"));
  EXPECT_THAT(message(*say("explode", 0, 0)), HasSubstr("neither pause nor resume"));
  EXPECT_THAT(message(*say("resume", 0, 0)), HasSubstr("nothing to do"));
}

// A partition taken out of Partitions= once kept what was grown there for good.
TEST_F(EngineCommands, APartitionThatIsSwitchedOffGoesBackToItsBases) {
  begin(2);
  const uint32_t id = steady_base();
  grow(id);
  rig.config.partitions = {"other"};
  rig.engine->set_config(rig.config);
  TestAgent agent(rig, id);
  const auto poll = agent.poll(1);
  rig.step(1);
  ASSERT_EQ(rig.state(id), "shrinking");
  ASSERT_TRUE(poll->answered());
  agent.report(order_of(*poll).order_id, true, order_of(*poll).allocations, 0);
  agent.report(order_of(*poll).order_id, true, order_of(*poll).allocations, 3);
  rig.step(1);
  EXPECT_EQ(held(id), 8);
  no_growth_for(id, 60);
  EXPECT_EQ(newest(id).rule, "switched-off");
  EXPECT_THAT(newest(id).reason, HasSubstr("partition gpu"));
}

}  // namespace
}  // namespace flextrain::slurm_plugin
