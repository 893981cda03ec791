// SPDX-License-Identifier: GPL-2.0-or-later
// The life of elastic jobs over a fake cluster.
#include "engine_fixture.h"

namespace flextrain::slurm_plugin {
namespace {

using protocol::OrderKind;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(EngineTest, GrowsIntoIdleNodesAndStoresWhatItDid) {
  begin(4);
  const uint32_t id = steady_base();
  const protocol::Order order = grow(id, 6.5);
  EXPECT_EQ(gpus_of(order.allocations), 32);
  EXPECT_EQ(order.allocations.front().job_id, id);
  EXPECT_EQ(order.plan, plan(32));
  EXPECT_EQ(rig.cluster.companions().size(), 3u);  // one per node
  EXPECT_EQ(held(id), 32);
  const auto scalings = rig.scalings();
  ASSERT_EQ(scalings.size(), 1u);
  EXPECT_EQ(scalings[0].outcome, "done");
  EXPECT_EQ(scalings[0].from_gpus, 8);
  EXPECT_EQ(scalings[0].to_gpus, 32);
  EXPECT_DOUBLE_EQ(scalings[0].phases.total, 6.5);
  EXPECT_DOUBLE_EQ(rig.job(id)->row.grow_overhead_seconds, 6.5);
  // The decision names its inputs, and what became of it refers to it.
  const auto decision = rig.store->queries().decision(scalings[0].decision_id).value();
  EXPECT_EQ(decision.kind, "grow");
  EXPECT_FALSE(decision.inputs.empty());
  EXPECT_NE(decision.snapshot_id, 0);
  EXPECT_EQ(rig.store->queries().snapshot(decision.snapshot_id).value().at("total_gpus"), 32);
  EXPECT_THAT(rig.store->queries().open_intents().value(), IsEmpty());
}

TEST_F(EngineTest, MeasuredOverheadIsWhatTheNextDecisionUses) {
  begin(2);
  const uint32_t id = steady_base();
  grow(id, 30);
  rig.cluster.finish(rig.cluster.companions().front().job_id);
  rig.step(1);
  TestAgent agent(rig, id);
  agent.report("", true, agent.own(), 3, "a companion went away");
  // 8 steps of 5 s: halving 40 s saves 20 s, less than the 30 s measured.
  agent.progress(0, 8, 5, 8);
  rig.step(10);
  const auto last = rig.decisions().back();
  EXPECT_EQ(last.kind, "refuse");
  EXPECT_EQ(last.rule, "guard");
  EXPECT_DOUBLE_EQ(last.inputs.at("O"), 30);
  EXPECT_EQ(rig.state(id), "steady");
}

TEST_F(EngineTest, ARigidJobGetsItsGpusBack) {
  begin(3);
  const uint32_t id = steady_base();
  grow(id);
  ASSERT_EQ(held(id), 24);
  TestAgent agent(rig, id);
  const auto poll = agent.poll(rig.job(id)->intent ? 0 : 1);
  const uint32_t rigid = rig.submit(2002, 8, 1, /*elastic=*/false);
  rig.step(1);
  EXPECT_EQ(rig.state(id), "shrinking");
  ASSERT_TRUE(poll->answered());
  const protocol::Order order = order_of(*poll);
  EXPECT_EQ(order.kind, OrderKind::kShrink);
  EXPECT_EQ(gpus_of(order.allocations), 16);
  EXPECT_EQ(order.plan, plan(16));
  // Only what is needed: another round makes no second victim.
  rig.step(1);
  EXPECT_THAT(rig.cluster.cancelled(), IsEmpty());
  EXPECT_EQ(rig.cluster.companions().size(), 2u);
  // The trainer has left: the GPUs go back before the relaunch is through.
  agent.report(order.order_id, true, order.allocations, 0);
  EXPECT_EQ(rig.cluster.find(rigid).state, JobState::kRunning);
  EXPECT_EQ(rig.state(id), "shrinking");
  rig.step(2);
  EXPECT_EQ(rig.state(id), "shrinking");
  agent.report(order.order_id, true, order.allocations, 5.5);
  EXPECT_EQ(rig.state(id), "steady");
  EXPECT_EQ(held(id), 16);
  const auto scaling = rig.scalings().back();
  EXPECT_EQ(scaling.kind, "shrink");
  EXPECT_EQ(scaling.for_job, rigid);
  EXPECT_EQ(scaling.outcome, "done");
  EXPECT_DOUBLE_EQ(scaling.phases.total, 5.5);
  EXPECT_DOUBLE_EQ(rig.job(id)->row.shrink_overhead_seconds, 5.5);
}

TEST_F(EngineTest, Fp32TakesAnyFingerprint) {
  begin(2);
  const uint32_t id = rig.submit(1001, 8);
  rig.step(1);
  TestAgent agent(rig, id);
  agent.register_base("cpu/avx2", "fp32");
  agent.table({8, 16});
  const auto poll = agent.poll();
  rig.step();
  register_companions("cpu/sse41");
  ASSERT_TRUE(poll->answered());
  EXPECT_EQ(order_of(*poll).kind, OrderKind::kGrow);
}

TEST_F(EngineTest, NoGrowthBeforeTheBasesFingerprintIsKnown) {
  begin(2);
  const uint32_t id = rig.submit(1001, 8);
  rig.step(1);
  TestAgent agent(rig, id);
  agent.register_base("");
  agent.table({8, 16});
  rig.step();
  EXPECT_EQ(rig.state(id), "steady");
  EXPECT_THAT(rig.cluster.companions(), IsEmpty());
  agent.register_base("cpu/avx2");
  rig.step();
  EXPECT_EQ(rig.state(id), "companions-pending");
}

TEST_F(EngineTest, CompanionsGoWhenTheBaseEnds) {
  begin(3);
  const uint32_t id = steady_base();
  grow(id);
  rig.cluster.finish(id, 0);
  rig.step(1);
  EXPECT_THAT(rig.cluster.companions(), IsEmpty());
  rig.step(1);
  EXPECT_EQ(rig.state(id), "none");
  const auto row = rig.store->queries().latest_job(id).value();
  EXPECT_EQ(row.state, "ended");
  EXPECT_NE(row.end_time, 0);
  const auto companions = rig.store->queries().companions({}).value();
  EXPECT_EQ(companions.size(), 2u);
  for (const auto& companion : companions) {
    EXPECT_EQ(companion.state, "ended");
    EXPECT_NE(companion.end_reason, "");
  }
}

TEST_F(EngineTest, CompanionsGoWhenTheAgentLeavesThoughTheScriptGoesOn) {
  begin(2);
  const uint32_t id = steady_base();
  grow(id);
  TestAgent(rig, id).bye(0);
  rig.step(1);
  EXPECT_THAT(rig.cluster.companions(), IsEmpty());
  EXPECT_EQ(rig.state(id), "starting");
  // A second trainer in the same script is elastic again.
  TestAgent agent(rig, id);
  EXPECT_EQ(agent.register_base()->answer_->error, "");
  EXPECT_EQ(rig.state(id), "steady");
}

TEST_F(EngineTest, ARequeuedBaseIsANewRun) {
  begin(3);
  const uint32_t id = steady_base();
  grow(id);
  TestAgent old_agent(rig, id);
  rig.cluster.requeue(id);
  rig.step(1);
  EXPECT_THAT(rig.cluster.companions(), IsEmpty());
  rig.step(1);
  ASSERT_NE(rig.job(id), nullptr);
  EXPECT_EQ(rig.job(id)->row.key.restart_count, 1);
  EXPECT_EQ(rig.state(id), "starting");
  EXPECT_NE(old_agent.poll()->answer_->error, "");  // of the run before
  EXPECT_EQ(TestAgent(rig, id).register_base()->answer_->error, "");
}

TEST_F(EngineTest, WhenSlurmPreemptsTheAgentShrinksByItselfAndIsFollowed) {
  begin(3);
  const uint32_t id = steady_base();
  const protocol::Order order = grow(id);
  rig.stop_growing();
  TestAgent agent(rig, id);
  // Slurm told the companion on n3; the agent went on over the rest.
  std::vector<protocol::Allocation> rest(order.allocations.begin(), order.allocations.end() - 1);
  agent.report("", true, rest, 0, "Slurm calls a companion back");
  rig.step(1);
  EXPECT_EQ(rig.state(id), "steady");
  EXPECT_EQ(held(id), 16);
  EXPECT_EQ(rig.cluster.companions().size(), 1u);
  EXPECT_EQ(rig.cluster.companions().front().nodes.front(), rest.back().host);
}

TEST_F(EngineTest, LeasesAreRenewedAndNeverPastAPlannedStart) {
  begin(2);
  const uint32_t id = steady_base();
  grow(id);
  const uint32_t companion = rig.cluster.companions().front().job_id;
  const int64_t first_end = rig.cluster.find(companion).end_time;
  TestAgent agent(rig, id);
  for (int step = 0; step < 20; ++step) {
    agent.progress(step, 100000, 1, 16);
    rig.step(10);
  }
  EXPECT_GT(rig.cluster.find(companion).end_time, first_end);
  EXPECT_EQ(rig.cluster.find(companion).state, JobState::kRunning);
  EXPECT_EQ(rig.job(id)->companions.at(companion).row.lease_end,
            rig.cluster.find(companion).end_time);
}

TEST_F(EngineTest, TheTrainerLeavesBeforeALeaseThatIsNotRenewed) {
  begin(2);
  const uint32_t id = steady_base();
  grow(id);
  const JobRecord companion = rig.cluster.companions().front();
  // A job without GPUs is planned on the companion's node at the end of its lease.
  JobRecord cpu_job;
  cpu_job.user_id = 3003;
  cpu_job.partition = "gpu";
  cpu_job.held = true;  // the fake scheduler shall not start it
  cpu_job.start_time = companion.end_time;
  cpu_job.planned_nodes = companion.nodes.front();
  rig.cluster.submit(cpu_job);
  TestAgent agent(rig, id);
  std::shared_ptr<TestReply> poll;
  for (int step = 0; step < 40 && rig.state(id) == "steady"; ++step) {
    agent.progress(step, 100000, 1, 16);
    poll = agent.poll(1);
    rig.step(10);
  }
  ASSERT_EQ(rig.state(id), "shrinking");
  EXPECT_EQ(rig.cluster.find(companion.job_id).end_time, companion.end_time);
  EXPECT_LT(rig.cluster.now(), companion.end_time - rig.config.companion_signal_seconds);
  EXPECT_EQ(rig.decisions().back().rule, "lease-end");
  ASSERT_TRUE(poll->answered());
  EXPECT_EQ(gpus_of(order_of(*poll).allocations), 8);
}

TEST_F(EngineTest, APendingGrowthIsGivenUpForAWaitingJob) {
  begin(2);
  const uint32_t id = steady_base();
  rig.step();
  ASSERT_EQ(rig.state(id), "companions-pending");
  const uint32_t rigid = rig.submit(2002, 8, 1, false);
  rig.step(1);
  rig.step(1);
  EXPECT_EQ(rig.cluster.find(rigid).state, JobState::kRunning);
  EXPECT_EQ(rig.state(id), "steady");
  EXPECT_EQ(rig.scalings().back().outcome, "rolled-back");
  EXPECT_THAT(rig.scalings().back().reason, HasSubstr("waits"));
  EXPECT_EQ(rig.job(id)->row.failures, 0);  // nobody failed
}

TEST_F(EngineTest, APendingGrowthIsKeptWhenAWaitingJobCouldNotStartAnyway) {
  begin(2);
  rig.config.policy.require_empty_queue = false;
  rig.start();
  const uint32_t id = steady_base();
  rig.step();
  ASSERT_EQ(rig.state(id), "companions-pending");
  rig.submit(2002, 24, 3, false);  // more than there is
  rig.step(1);
  EXPECT_EQ(rig.state(id), "companions-pending");
}

TEST_F(EngineTest, NoGrowthWhileAJobWaits) {
  begin(2);
  const uint32_t id = steady_base();
  rig.submit(2002, 24, 3, false);  // can never start here
  rig.step(10);
  rig.step(10);
  EXPECT_EQ(rig.state(id), "steady");
  EXPECT_EQ(rig.decisions().back().rule, "queue-not-empty");
  EXPECT_GT(rig.decisions().back().repeats, 1);  // the repeated no is one row
}

TEST_F(EngineTest, TwoJobsOfTwoUsersGrowAndShrinkSideBySide) {
  begin(6);
  const uint32_t a = steady_base(1001), b = steady_base(2002);
  TestAgent agent_a(rig, a), agent_b(rig, b);
  auto poll_a = agent_a.poll(), poll_b = agent_b.poll();
  rig.step();
  register_companions();
  ASSERT_TRUE(poll_a->answered());
  agent_a.report(order_of(*poll_a).order_id, true, order_of(*poll_a).allocations, 4);
  if (poll_b->answered()) {
    agent_b.report(order_of(*poll_b).order_id, true, order_of(*poll_b).allocations, 4);
  }
  std::map<std::string, int> companions_per_node;
  for (const JobRecord& companion : rig.cluster.companions()) {
    ++companions_per_node[companion.required_nodes];
    EXPECT_TRUE(companion.user_id == 1001 || companion.user_id == 2002);
  }
  for (const auto& [node, count] : companions_per_node) EXPECT_EQ(count, 1) << node;
  EXPECT_EQ(held(a) + held(b), 48);
  // A rigid job for two nodes takes from them, and both live.
  poll_a = agent_a.poll(2);
  poll_b = agent_b.poll(2);
  const uint32_t rigid = rig.submit(3003, 16, 2, false);
  rig.step(1);
  for (const auto& [agent, poll] : {std::pair{&agent_a, poll_a}, std::pair{&agent_b, poll_b}}) {
    if (!poll->answered()) continue;
    const protocol::Order order = order_of(*poll);
    EXPECT_EQ(order.kind, OrderKind::kShrink);
    agent->report(order.order_id, true, order.allocations, 0);
    agent->report(order.order_id, true, order.allocations, 4);
  }
  rig.step(1);
  EXPECT_EQ(rig.cluster.find(rigid).state, JobState::kRunning);
  EXPECT_EQ(held(a) + held(b), 32);
  EXPECT_EQ(rig.state(a), "steady");
  EXPECT_EQ(rig.state(b), "steady");
}

TEST_F(EngineTest, DisabledMeansNobodyGrowsAndWhatIsThereGoesBack) {
  begin(2);
  const uint32_t id = steady_base();
  grow(id);
  rig.config.enabled = false;
  rig.engine->set_config(rig.config);
  TestAgent agent(rig, id);
  const auto poll = agent.poll(1);
  rig.step(10);
  EXPECT_EQ(rig.state(id), "shrinking");
  ASSERT_TRUE(poll->answered());
  agent.report(order_of(*poll).order_id, true, order_of(*poll).allocations, 0);
  agent.report(order_of(*poll).order_id, true, order_of(*poll).allocations, 3);
  rig.step(10);
  EXPECT_EQ(held(id), 8);
  EXPECT_THAT(rig.cluster.companions(), IsEmpty());
  rig.step(100);
  EXPECT_EQ(rig.cluster.companions().size(), 0u);
}

}  // namespace
}  // namespace flextrain::slurm_plugin
