// SPDX-License-Identifier: GPL-2.0-or-later
// What goes wrong, and that the job goes on at its last good size.
#include "engine_fixture.h"

namespace flextrain::slurm_plugin {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(EngineTest, ASilentAgentLosesTheCompanionsAfterTheTimeout) {
  begin(2);
  const uint32_t id = steady_base();
  grow(id);
  TestAgent agent(rig, id);
  const auto poll = agent.poll(1);
  const uint32_t rigid = rig.submit(2002, 8, 1, false);
  rig.step(1);
  ASSERT_EQ(rig.state(id), "shrinking");
  for (int64_t waited = 0; waited <= rig.config.shrink_timeout; waited += 10) {
    EXPECT_NE(rig.cluster.find(rigid).state, JobState::kRunning);
    agent.progress(1, 1000, 1, 16);  // alive, but it does not confirm
    rig.step(10);
  }
  rig.step(10);
  EXPECT_EQ(rig.cluster.find(rigid).state, JobState::kRunning);
  EXPECT_EQ(rig.scalings().back().outcome, "failed");
  EXPECT_EQ(rig.cluster.find(id).state, JobState::kRunning);
  // The ranks died with the companion; the agent goes on alone and says so.
  agent.report("", true, agent.own(), 8, "companion lost");
  rig.step(10);
  EXPECT_EQ(rig.state(id), "steady");
  EXPECT_EQ(held(id), 8);
}

TEST_F(EngineTest, FingerprintMismatchIsRefusedWithTheReason) {
  begin(2);
  const uint32_t id = steady_base();
  TestAgent agent(rig, id);
  const auto poll = agent.poll();
  rig.step();
  register_companions("cpu/sse41");
  EXPECT_FALSE(poll->answered());
  EXPECT_EQ(rig.scalings().back().outcome, "rolled-back");
  EXPECT_THAT(rig.scalings().back().reason, HasSubstr("cpu/sse41"));
  rig.step(1);
  EXPECT_EQ(rig.state(id), "steady");
  EXPECT_THAT(rig.cluster.companions(), IsEmpty());
  EXPECT_EQ(held(id), 8);
  EXPECT_EQ(rig.job(id)->row.failures, 1);
}

TEST_F(EngineTest, ACompanionThatNeverStartsRollsTheGrowthBack) {
  begin(2);
  const uint32_t id = steady_base();
  rig.cluster.hold_companions(true);
  TestAgent agent(rig, id);
  rig.step();
  ASSERT_EQ(rig.state(id), "companions-pending");
  ASSERT_EQ(rig.cluster.companions().size(), 1u);
  for (int64_t waited = 0; waited <= rig.config.companion_start_timeout; waited += 10) {
    agent.poll();
    rig.step(10);
  }
  EXPECT_EQ(rig.state(id), "steady");
  EXPECT_THAT(rig.cluster.companions(), IsEmpty());
  EXPECT_EQ(rig.scalings().back().outcome, "rolled-back");
  EXPECT_THAT(rig.scalings().back().reason, HasSubstr("submitted"));
  EXPECT_EQ(rig.job(id)->row.failures, 1);
}

// Slurm takes one of two companions back while its node is still being made ready: the other is of
// no use, and goes too.
TEST_F(EngineTest, ACompanionPreemptedBeforeItRegisteredRollsTheGrowthBack) {
  begin(3);
  const uint32_t id = steady_base();
  TestAgent agent(rig, id);
  const auto poll = agent.poll();
  rig.step();
  ASSERT_EQ(rig.state(id), "companions-pending");
  const auto companions = rig.cluster.companions();
  ASSERT_EQ(companions.size(), 2u);
  TestAgent(rig, companions[0].job_id).register_companion();
  EXPECT_FALSE(poll->answered());
  rig.cluster.finish(companions[1].job_id, 1);
  rig.step(1);
  rig.step(1);
  EXPECT_EQ(rig.state(id), "steady");
  EXPECT_FALSE(poll->answered()) << "the trainer was not disturbed";
  EXPECT_THAT(rig.cluster.companions(), IsEmpty());
  EXPECT_EQ(held(id), 8);
  EXPECT_EQ(rig.scalings().back().outcome, "rolled-back");
  EXPECT_THAT(rig.scalings().back().reason, HasSubstr(std::to_string(companions[1].job_id)));
  EXPECT_EQ(rig.job(id)->row.failures, 1);
}

TEST_F(EngineTest, ANodeTakenOutOfTheConfigurationUnderACompanion) {
  begin(3);
  const uint32_t id = steady_base();
  const protocol::Order order = grow(id);
  rig.stop_growing();
  rig.cluster.remove_node(order.allocations.back().host);
  rig.step(1);
  EXPECT_EQ(rig.state(id), "recovering");
  TestAgent agent(rig, id);
  const std::vector<protocol::Allocation> rest(order.allocations.begin(),
                                               order.allocations.end() - 1);
  agent.report("", true, rest, 7, "a companion died");
  rig.step(1);
  EXPECT_EQ(rig.state(id), "steady");
  EXPECT_EQ(held(id), 16);
  EXPECT_EQ(rig.cluster.companions().size(), 1u);
}

// slurmctld lists jobs on a node that it does not know any more until it has ended them.
TEST_F(EngineTest, ANodeTakenOutOfTheConfigurationUnderABase) {
  begin(4);
  const uint32_t id = rig.submit(1001, 16, 2);
  rig.step(1);
  TestAgent agent(rig, id);
  agent.register_base();
  agent.table({16, 24, 32});
  const auto poll = agent.poll();
  rig.step();
  register_companions();
  ASSERT_TRUE(poll->answered());
  agent.report(order_of(*poll).order_id, true, order_of(*poll).allocations, 4);
  ASSERT_EQ(held(id), 32);
  rig.cluster.remove_node("n2", /*jobs_end=*/false);
  rig.cluster.remove_node("n4", /*jobs_end=*/false);
  const uint32_t rigid = rig.submit(2002, 8, 1, false);
  for (int round = 0; round < 3; ++round) rig.step(1);
  EXPECT_EQ(rig.engine->last_error(), "");
  rig.cluster.finish(id, 1);
  rig.step(1);
  rig.step(1);
  EXPECT_EQ(rig.state(id), "none");
  EXPECT_THAT(rig.cluster.companions(), IsEmpty());
  EXPECT_EQ(rig.cluster.find(rigid).state, JobState::kRunning);
}

TEST_F(EngineTest, ASubmissionThatFailsRollsBackAtOnce) {
  begin(3);
  const uint32_t id = steady_base();
  rig.cluster.fail_submissions(true);
  rig.step();
  EXPECT_EQ(rig.state(id), "steady");
  EXPECT_EQ(rig.scalings().back().outcome, "rolled-back");
  EXPECT_THAT(rig.scalings().back().reason, HasSubstr("could not be submitted"));
}

TEST_F(EngineTest, AnAgentsFailedReportRollsBack) {
  begin(2);
  const uint32_t id = steady_base();
  TestAgent agent(rig, id);
  const auto poll = agent.poll();
  rig.step();
  register_companions();
  ASSERT_TRUE(poll->answered());
  agent.report(order_of(*poll).order_id, false, agent.own(), 0, "mpirun ended with 205");
  rig.step(1);
  EXPECT_EQ(rig.state(id), "steady");
  EXPECT_EQ(held(id), 8);
  EXPECT_THAT(rig.cluster.companions(), IsEmpty());
  EXPECT_EQ(rig.scalings().back().outcome, "rolled-back");
  EXPECT_THAT(rig.scalings().back().reason, HasSubstr("205"));
  // And pauses before the next try.
  rig.step(1);
  EXPECT_EQ(rig.decisions().back().rule, "failure-pause");
}

// An order that nobody fetched once held its GPUs for all of GrowTimeout.
TEST_F(EngineTest, AnOrderThatNobodyFetchesRollsBackSooner) {
  begin(2);
  const uint32_t id = steady_base();
  TestAgent agent(rig, id);
  rig.step();
  register_companions();
  ASSERT_EQ(rig.state(id), "switching");
  for (int64_t waited = 0; waited < rig.config.agent_timeout + 20; waited += 10) {
    agent.progress(1, 100000, 1, 8);  // alive, but it does not poll
    rig.step(10);
  }
  EXPECT_EQ(rig.state(id), "steady");
  EXPECT_THAT(rig.cluster.companions(), IsEmpty());
  EXPECT_THAT(rig.scalings().back().reason, HasSubstr("did not fetch"));
}

TEST_F(EngineTest, AnUnconfirmedGrowthRollsBackAfterTheTimeout) {
  begin(2);
  const uint32_t id = steady_base();
  TestAgent agent(rig, id);
  const auto poll = agent.poll();
  rig.step();
  register_companions();
  ASSERT_EQ(rig.state(id), "switching");
  for (int64_t waited = 0; waited <= rig.config.grow_timeout + 20; waited += 20) {
    agent.progress(1, 100000, 1, 8, "switching");
    rig.step(20);
  }
  EXPECT_EQ(rig.state(id), "steady");
  EXPECT_THAT(rig.cluster.companions(), IsEmpty());
  EXPECT_EQ(rig.scalings().back().outcome, "rolled-back");
  // A report that comes after all that changes nothing for good.
  agent.report(order_of(*poll).order_id, true, order_of(*poll).allocations, 400);
  rig.step(1);
  EXPECT_EQ(held(id), 8);
}

TEST_F(EngineTest, CompanionsGoWhenTheAgentIsSilent) {
  begin(2);
  const uint32_t id = steady_base();
  grow(id);
  rig.step(rig.config.agent_timeout + 1);
  rig.step(1);
  EXPECT_EQ(rig.state(id), "starting");
  EXPECT_THAT(rig.cluster.companions(), IsEmpty());
}

// A suspended base once kept its companions, unused, for as long as it slept.
TEST_F(EngineTest, CompanionsOfASuspendedBaseGo) {
  begin(2);
  const uint32_t id = steady_base();
  rig.cluster.suspend(id, true);
  rig.step(rig.config.agent_timeout + 1);
  EXPECT_EQ(rig.state(id), "steady");  // silent, but it holds nothing that others could have
  rig.cluster.suspend(id, false);
  grow(id);
  rig.cluster.suspend(id, true);
  rig.step(rig.config.agent_timeout / 2);
  EXPECT_EQ(rig.cluster.companions().size(), 1u);
  rig.step(rig.config.agent_timeout / 2 + 2);
  rig.step(1);
  EXPECT_THAT(rig.cluster.companions(), IsEmpty());
  EXPECT_THAT(rig.job(id)->row.state_reason, HasSubstr("suspended"));
  rig.cluster.suspend(id, false);
  TestAgent agent(rig, id);
  EXPECT_EQ(agent.register_base()->answer_->error, "");
  EXPECT_EQ(rig.state(id), "steady");
}

TEST_F(EngineTest, ALostCompanionIsBookedAndTheJobGoesOn) {
  begin(3);
  const uint32_t id = steady_base();
  grow(id);
  rig.stop_growing();
  rig.cluster.fail_node("n3");
  rig.step(1);
  EXPECT_EQ(rig.state(id), "recovering");
  TestAgent agent(rig, id);
  // It relaunched over the base alone: the other companion is of no use and goes too.
  agent.report("", true, agent.own(), 7, "a companion died");
  rig.step(1);
  EXPECT_EQ(rig.state(id), "steady");
  EXPECT_EQ(held(id), 8);
  EXPECT_THAT(rig.cluster.companions(), IsEmpty());
}

TEST_F(EngineTest, AnAgentStartedAnewInItsJobGivesTheCompanionsUp) {
  begin(2);
  const uint32_t id = steady_base();
  grow(id);
  rig.stop_growing();
  TestAgent agent(rig, id);
  agent.progress(5, 1000, 1, 16);
  rig.step(10);
  EXPECT_EQ(held(id), 16);
  for (int64_t waited = 0; waited <= rig.config.agent_timeout / 3 + 10; waited += 10) {
    agent.progress(5, 1000, 1, 8);
    rig.step(10);
  }
  EXPECT_THAT(rig.cluster.companions(), IsEmpty());
  EXPECT_EQ(held(id), 8);
}

// The controller went on counting a node of the base that the owner had given up: orders for more
// GPUs than the agent's registration held, and a size that nothing agreed with.
TEST_F(EngineTest, ANodeOfTheBaseThatItsOwnerGivesUpIsNoLongerCounted) {
  begin(5);
  const uint32_t id = rig.submit(1001, 16, 2);
  rig.step(1);
  TestAgent agent(rig, id);
  agent.register_base();
  agent.table({8, 16, 24, 32});
  rig.stop_growing();
  grow(id);
  ASSERT_EQ(held(id), 32);

  const int most_before = rig.job(id)->row.max_gpus;
  rig.cluster.give_up_node(id, "n2");
  rig.step(1);
  EXPECT_EQ(rig.job(id)->row.base_gpus, 8);
  EXPECT_EQ(held(id), 24);
  const int most = rig.job(id)->row.max_gpus;
  EXPECT_LT(most, most_before);
  agent.register_base();  // as it has found out, with what is left
  rig.start();            // and so it is stored
  EXPECT_EQ(rig.job(id)->row.base_gpus, 8);
  EXPECT_EQ(rig.job(id)->row.max_gpus, most);
  rig.step(1);

  // A job that waits for everything that is not the base's: the order names what is left.
  const auto poll = agent.poll();
  rig.submit(1002, 32, 4, false);
  rig.step();
  ASSERT_TRUE(poll->answered());
  const protocol::Order order = order_of(*poll);
  EXPECT_EQ(order.kind, protocol::OrderKind::kShrink);
  EXPECT_EQ(gpus_of(order.allocations), 8);
}

TEST_F(EngineTest, AGrowthUnderWayIsGivenUpWhenTheBaseBecomesSmaller) {
  begin(5);
  const uint32_t id = rig.submit(1001, 16, 2);
  rig.step(1);
  TestAgent agent(rig, id);
  agent.register_base();
  agent.table({8, 16, 24, 32});
  rig.step();
  ASSERT_EQ(rig.state(id), "companions-pending");
  rig.cluster.give_up_node(id, "n2");
  rig.step(1);
  ASSERT_EQ(rig.scalings().size(), 1u);
  EXPECT_EQ(rig.scalings().front().outcome, "rolled-back");
  EXPECT_NE(rig.scalings().front().reason.find("given up"), std::string::npos);
  EXPECT_EQ(rig.job(id)->row.failures, 0);
  EXPECT_EQ(rig.job(id)->row.base_gpus, 8);
}

TEST_F(EngineTest, AFullDiskStopsGrowthButNotGivingBack) {
  begin(3);
  const uint32_t id = steady_base();
  grow(id);
  rig.max_pages = 200;
  rig.start();
  int row_number = 0;
  for (const size_t size : {size_t{3000}, size_t{300}, size_t{30}, size_t{1}}) {
    for (bool ok = true; ok;) {
      store::DecisionRow row;
      row.kind = "refuse";
      row.rule = "filler-" + std::to_string(++row_number);  // never coalesced
      row.reason = std::string(size, 'x');
      ok = rig.store->record_tick(Json::object(), {row}).ok();
    }
  }
  TestAgent agent(rig, id);
  const auto poll = agent.poll(0);
  const uint32_t rigid = rig.submit(2002, 8, 1, false);
  rig.step(1);
  EXPECT_NE(rig.engine->last_error(), "");
  ASSERT_EQ(rig.state(id), "shrinking");
  ASSERT_TRUE(poll->answered());
  agent.report(order_of(*poll).order_id, true, order_of(*poll).allocations, 0);
  agent.report(order_of(*poll).order_id, true, order_of(*poll).allocations, 4);
  rig.step(1);
  EXPECT_EQ(rig.cluster.find(rigid).state, JobState::kRunning);
  EXPECT_EQ(held(id), 16);
  // Another node is free again, and nobody takes it without a record.
  rig.cluster.finish(rigid);
  rig.step(10);
  EXPECT_EQ(rig.state(id), "steady");
  EXPECT_EQ(rig.cluster.companions().size(), 1u);
  // With room again the store counted on from before the shrink: the growth's order had a number
  // that the agent knew, and was never sent.
  ASSERT_TRUE(rig.store->run_retention(rig.cluster.now(), store::Retention{.days = 1}).ok());
  const int64_t had = poll->answer_->sequence;
  agent.poll(had);
  rig.step(10);
  ASSERT_EQ(rig.state(id), "companions-pending");
  for (const JobRecord& companion : rig.cluster.companions()) {
    TestAgent(rig, companion.job_id).register_companion();
  }
  ASSERT_EQ(rig.state(id), "switching");
  EXPECT_GT(rig.job(id)->intent->sequence, had);
  EXPECT_TRUE(agent.poll(had)->answered());
}

TEST_F(EngineTest, AClusterThatDoesNotAnswerChangesNothing) {
  begin(2);
  const uint32_t id = steady_base();
  grow(id);
  rig.cluster.fail_observation(true);
  rig.step(10);
  rig.step(10);
  EXPECT_EQ(rig.state(id), "steady");
  EXPECT_THAT(rig.engine->last_error(), HasSubstr("does not answer"));
  rig.cluster.fail_observation(false);
  rig.step(1);
  EXPECT_EQ(held(id), 16);
}

TEST_F(EngineTest, OrphansAreCancelled) {
  begin(2);
  CompanionRequest request;
  request.partition = "gpu";
  request.node = "n2";
  request.gres = "gres:gpu:8";
  request.admin_comment = protocol::companion_token(4711, "gone");
  const uint32_t orphan = rig.cluster.submit_companion(request).value();
  rig.step(1);
  EXPECT_EQ(rig.cluster.find(orphan).state, JobState::kEnded);
}

}  // namespace
}  // namespace flextrain::slurm_plugin
