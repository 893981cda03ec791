// SPDX-License-Identifier: GPL-2.0-or-later
// A controller that dies in any state converges after its restart.
#include "engine_rig.h"

namespace flextrain::slurm_plugin {
namespace {

using ::testing::IsEmpty;

class RestartTest : public ::testing::Test {
 protected:
  RestartTest() {
    rig.nodes(3);
    rig.start();
    id = rig.submit(1001, 8);
    rig.step(1);
    TestAgent agent(rig, id);
    agent.register_base();
    agent.table({8, 16, 24});
  }
  void register_companions() {
    for (const JobRecord& companion : rig.cluster.companions()) {
      if (companion.state == JobState::kRunning) {
        TestAgent(rig, companion.job_id).register_companion();
      }
    }
  }
  protocol::Order ordered() {
    const auto poll = TestAgent(rig, id).poll(0);
    EXPECT_TRUE(poll->answered());
    return poll->answered() ? order_of(*poll) : protocol::Order{};
  }
  void grow() {
    rig.step();
    register_companions();
    const protocol::Order order = ordered();
    TestAgent(rig, id).report(order.order_id, true, order.allocations, 4);
    ASSERT_EQ(rig.job(id)->held_gpus(), 24);
  }
  void nothing_open() { EXPECT_THAT(rig.store->queries().open_intents().value(), IsEmpty()); }

  Rig rig;
  uint32_t id = 0;
};

TEST_F(RestartTest, Steady) {
  grow();
  const int64_t epoch = rig.engine->epoch();
  rig.start();
  EXPECT_GT(rig.engine->epoch(), epoch);
  EXPECT_EQ(rig.state(id), "steady");
  EXPECT_EQ(rig.job(id)->held_gpus(), 24);
  EXPECT_EQ(rig.job(id)->table.entries.size(), 3u);
  EXPECT_DOUBLE_EQ(rig.job(id)->row.grow_overhead_seconds, 4);
  TestAgent(rig, id).poll(9);
  rig.step(10);
  EXPECT_EQ(rig.cluster.companions().size(), 2u);
}

TEST_F(RestartTest, CompanionsPending) {
  rig.step();
  ASSERT_EQ(rig.state(id), "companions-pending");
  rig.start();
  rig.step(1);
  ASSERT_EQ(rig.state(id), "companions-pending");
  EXPECT_EQ(rig.cluster.companions().size(), 2u);  // none twice
  register_companions();
  EXPECT_EQ(rig.state(id), "switching");
  const protocol::Order order = ordered();
  TestAgent(rig, id).report(order.order_id, true, order.allocations, 4);
  EXPECT_EQ(rig.job(id)->held_gpus(), 24);
  nothing_open();
}

TEST_F(RestartTest, BetweenIntentAndSubmission) {
  // The controller dies inside the very first submission.
  int submissions = 0;
  rig.cluster.on_call = [&](const char* call) {
    if (std::string(call) == "submit_companion" && ++submissions == 2) throw 1;
  };
  rig.cluster.advance(10);
  EXPECT_ANY_THROW(rig.engine->tick());
  rig.cluster.on_call = nullptr;
  rig.start();
  ASSERT_EQ(rig.state(id), "companions-pending");
  rig.step(1);
  EXPECT_EQ(rig.cluster.companions().size(), 2u);
  register_companions();
  EXPECT_EQ(rig.state(id), "switching");
}

TEST_F(RestartTest, BetweenSubmissionAndItsRecord) {
  // Slurm took the companion, the controller died before it knew the id.
  int jobs = 0;
  rig.cluster.on_call = [&](const char* call) {
    if (std::string(call) == "job" && ++jobs == 1) throw 1;
  };
  rig.cluster.advance(10);
  EXPECT_ANY_THROW(rig.engine->tick());
  rig.cluster.on_call = nullptr;
  ASSERT_EQ(rig.cluster.companions().size(), 1u);
  const uint32_t found = rig.cluster.companions().front().job_id;
  rig.start();
  rig.step(1);
  ASSERT_EQ(rig.cluster.companions().size(), 2u);
  EXPECT_TRUE(rig.job(id)->companions.contains(found));
  register_companions();
  EXPECT_EQ(rig.state(id), "switching");
}

TEST_F(RestartTest, SwitchingOrderNotFetchedYet) {
  rig.step();
  register_companions();
  ASSERT_EQ(rig.state(id), "switching");
  rig.start();
  ASSERT_EQ(rig.state(id), "switching");
  const protocol::Order order = ordered();
  EXPECT_EQ(gpus_of(order.allocations), 24);
  TestAgent(rig, id).report(order.order_id, true, order.allocations, 4);
  EXPECT_EQ(rig.state(id), "steady");
  nothing_open();
}

TEST_F(RestartTest, SwitchingOrderInWork) {
  rig.step();
  register_companions();
  const protocol::Order order = ordered();
  const int64_t sequence = rig.job(id)->intent->sequence;
  rig.start();
  rig.step(1);
  // The agent polls with the order's sequence: it is not sent again.
  EXPECT_FALSE(TestAgent(rig, id).poll(sequence)->answered());
  TestAgent(rig, id).report(order.order_id, true, order.allocations, 4);
  EXPECT_EQ(rig.state(id), "steady");
  EXPECT_EQ(rig.job(id)->held_gpus(), 24);
  EXPECT_EQ(rig.scalings().size(), 1u);
  nothing_open();
}

// slurmctld, killed within seconds of a submission, forgot the companions and gave their ids to the
// next ones while the nodes still ran the old: "Duplicate jobid", both nodes drained.
TEST_F(RestartTest, LostCompanionsAreNotReplacedBeforeTheirNodesHaveReported) {
  rig.config.policy.retry_after_failure_seconds = 0;
  rig.step();
  register_companions();
  ASSERT_EQ(rig.state(id), "switching");
  for (const JobRecord& companion : rig.cluster.companions()) {
    rig.cluster.forget(companion.job_id);
  }
  rig.start();
  for (int64_t waited = 1; waited < 60; waited += 10) {
    TestAgent(rig, id).poll(9);
    rig.step(waited == 1 ? 1 : 10);
    EXPECT_THAT(rig.cluster.companions(), IsEmpty());
  }
  EXPECT_EQ(rig.state(id), "steady");
  EXPECT_NE(rig.decisions().back().reason.find("lost companions"), std::string::npos);
  TestAgent(rig, id).poll(9);
  rig.step(10);
  EXPECT_EQ(rig.state(id), "companions-pending");
}

TEST_F(RestartTest, Shrinking) {
  grow();
  const uint32_t rigid = rig.submit(2002, 8, 1, false);
  rig.step(1);
  ASSERT_EQ(rig.state(id), "shrinking");
  rig.start();
  rig.step(1);
  ASSERT_EQ(rig.state(id), "shrinking");
  const protocol::Order order = ordered();
  EXPECT_EQ(gpus_of(order.allocations), 16);
  TestAgent agent(rig, id);
  agent.report(order.order_id, true, order.allocations, 0);
  EXPECT_EQ(rig.cluster.find(rigid).state, JobState::kRunning);
  rig.start();
  rig.step(1);
  agent.report(order.order_id, true, order.allocations, 5);
  EXPECT_EQ(rig.state(id), "steady");
  EXPECT_EQ(rig.job(id)->held_gpus(), 16);
  nothing_open();
}

TEST_F(RestartTest, ReleasingAndRollingBack) {
  rig.step();
  register_companions();
  const protocol::Order order = ordered();
  rig.cluster.complete_slowly(30);
  TestAgent(rig, id).report(order.order_id, false, TestAgent(rig, id).own(), 0, "no");
  ASSERT_EQ(rig.state(id), "rolling-back");
  rig.start();
  ASSERT_EQ(rig.state(id), "rolling-back");
  TestAgent(rig, id).poll(9);
  rig.step(10);
  EXPECT_EQ(rig.state(id), "rolling-back");
  TestAgent(rig, id).poll(9);
  rig.step(25);
  EXPECT_EQ(rig.state(id), "steady");
  EXPECT_THAT(rig.cluster.companions(), IsEmpty());
  nothing_open();
}

TEST_F(RestartTest, RecoveringAndNobodyReports) {
  grow();
  rig.stop_growing();
  rig.cluster.fail_node("n3");
  rig.step(1);
  ASSERT_EQ(rig.state(id), "recovering");
  rig.start();
  ASSERT_EQ(rig.state(id), "recovering");
  for (int64_t waited = 0; waited <= rig.config.shrink_timeout; waited += 10) {
    TestAgent(rig, id).poll(9);
    rig.step(10);
  }
  TestAgent(rig, id).poll(9);
  rig.step(1);
  EXPECT_EQ(rig.state(id), "steady");
  EXPECT_EQ(rig.job(id)->held_gpus(), 8);
}

TEST_F(RestartTest, TheBaseEndedWhileTheControllerWasAway) {
  grow();
  rig.cluster.finish(id, 3);
  rig.start();
  rig.step(1);
  rig.step(1);
  EXPECT_THAT(rig.cluster.companions(), IsEmpty());
  EXPECT_EQ(rig.state(id), "none");
  EXPECT_EQ(rig.store->queries().latest_job(id).value().state, "ended");
}

TEST_F(RestartTest, EndedInTheMiddleOfASwitch) {
  rig.step();
  ASSERT_EQ(rig.state(id), "companions-pending");
  rig.cluster.complete_slowly(30);
  rig.cluster.finish(id);
  rig.step(1);
  ASSERT_EQ(rig.state(id), "ending");
  rig.start();
  ASSERT_EQ(rig.state(id), "ending");
  rig.step(40);
  rig.step(1);
  EXPECT_EQ(rig.state(id), "none");
  nothing_open();
  EXPECT_EQ(rig.scalings().back().outcome, "rolled-back");
}

TEST_F(RestartTest, WithoutItsStoreCompanionsAreOrphansAndGo) {
  grow();
  Rig fresh;  // the same cluster would need its store; here the store is what is lost
  rig.engine.reset();
  fresh.start();
  Engine amnesiac(rig.config, rig.cluster, *fresh.store,
                  Engine::Options{[&] { return rig.cluster.now(); }, Rig::kSlurmUser});
  ASSERT_TRUE(amnesiac.load().ok());
  amnesiac.tick();
  EXPECT_THAT(rig.cluster.companions(), IsEmpty());
  EXPECT_EQ(rig.cluster.find(id).state, JobState::kRunning);
}

}  // namespace
}  // namespace flextrain::slurm_plugin
