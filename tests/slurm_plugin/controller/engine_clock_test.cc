// SPDX-License-Identifier: GPL-2.0-or-later
// The machine's clock is set by ten minutes, or the process stood still: no agent is taken for
// silent, no order for late, no back-off for over or for endless, and leases are renewed in Slurm's
// time.
#include "engine_fixture.h"

namespace flextrain::slurm_plugin {
namespace {

using ::testing::IsEmpty;

class EngineClock : public EngineTest, public ::testing::WithParamInterface<int64_t> {
 protected:
  EngineClock() { rig.steady = true; }
  int64_t jump() const { return GetParam(); }
  // Rounds of 10 s with a living agent.
  void live(uint32_t id, int64_t seconds, int gpus) {
    TestAgent agent(rig, id);
    for (int64_t waited = 0; waited < seconds; waited += 10) {
      agent.progress(1, 1'000'000, 1, gpus);
      rig.step(10);
    }
  }
};
INSTANTIATE_TEST_SUITE_P(TenMinutes, EngineClock, ::testing::Values(600, -600),
                         [](const auto& info) { return info.param > 0 ? "ahead" : "back"; });

TEST_P(EngineClock, NoAgentIsSilentForIt) {
  begin(2);
  const uint32_t id = steady_base();
  grow(id);
  rig.set_clock(jump());
  rig.step(0);  // the controller is awake at once, slurmctld looks for ended leases every 30 s
  EXPECT_EQ(rig.state(id), "steady");
  EXPECT_EQ(held(id), 16);
  EXPECT_EQ(rig.engine->live()->diag.at("clock_jumps"), 1);
  live(id, 60, 16);
  EXPECT_EQ(held(id), 16);
  // And one that is silent from now on is noticed when its time is over, not sooner or later.
  for (int64_t waited = 0; waited < rig.config.agent_timeout - 10; waited += 10) rig.step(10);
  EXPECT_EQ(rig.state(id), "steady");
  for (int n = 0; n < 3; ++n) rig.step(10);
  EXPECT_EQ(rig.state(id), "starting");
  EXPECT_THAT(rig.cluster.companions(), IsEmpty());
}

TEST_P(EngineClock, AnOrderKeepsItsTime) {
  begin(2);
  const uint32_t id = steady_base();
  TestAgent agent(rig, id);
  const auto poll = agent.poll();
  rig.step();
  register_companions();
  ASSERT_EQ(rig.state(id), "switching");
  rig.set_clock(jump());
  for (int64_t waited = 0; waited < rig.config.grow_timeout; waited += 10) {
    agent.progress(1, 1'000'000, 1, 8, "switching");
    rig.step(10);
    ASSERT_EQ(rig.state(id), "switching") << waited;
  }
  for (int n = 0; n < 4; ++n) {
    agent.progress(1, 1'000'000, 1, 8, "switching");
    rig.step(10);
  }
  EXPECT_EQ(rig.state(id), "steady");
  EXPECT_EQ(rig.scalings().back().outcome, "rolled-back");
}

TEST_P(EngineClock, ABackOffLastsAsLongAsItShould) {
  begin(2);
  const uint32_t id = steady_base();
  rig.cluster.fail_submissions(true);
  rig.step(10);
  rig.cluster.fail_submissions(false);
  ASSERT_EQ(rig.job(id)->row.failures, 1);
  rig.set_clock(jump());
  live(id, 50, 8);
  EXPECT_EQ(rig.state(id), "steady");
  live(id, 20, 8);
  EXPECT_EQ(rig.state(id), "companions-pending");
}

TEST_P(EngineClock, LeasesAreRenewedInSlurmsTime) {
  begin(2);
  const uint32_t id = steady_base();
  grow(id);
  const uint32_t companion = rig.cluster.companions().front().job_id;
  rig.set_clock(jump());
  rig.step(0);  // ahead: by Slurm's clock the lease is over
  const int64_t end = rig.cluster.find(companion).end_time;
  EXPECT_GE(end, rig.cluster.now() + rig.config.renew_seconds);
  // Back: Slurm counts from a start that lies ahead; the rest is cut off.
  const int64_t start = rig.cluster.find(companion).start_time;
  EXPECT_LE(end, std::max(rig.cluster.now() + rig.config.lease_seconds, start) + 60);
  live(id, 1200, 16);
  EXPECT_EQ(held(id), 16);
  EXPECT_EQ(rig.cluster.find(companion).state, JobState::kRunning);
}

class EngineStopped : public EngineTest {
 protected:
  EngineStopped() { rig.steady = true; }
};

// A process that was stopped heard nobody: the agents were not silent.
TEST_F(EngineStopped, AStoppedProcessTakesNobodyForSilent) {
  begin(3);
  const uint32_t id = steady_base();
  grow(id);
  TestAgent agent(rig, id);
  const auto poll = agent.poll(1);
  rig.submit(2002, 8, 1, false);
  rig.step(1);
  ASSERT_EQ(rig.state(id), "shrinking");
  rig.step(280);  // less than the lease
  EXPECT_EQ(rig.state(id), "shrinking");
  EXPECT_TRUE(rig.job(id)->row.registered);
  ASSERT_TRUE(poll->answered());
  agent.report(order_of(*poll).order_id, true, order_of(*poll).allocations, 0);
  agent.report(order_of(*poll).order_id, true, order_of(*poll).allocations, 4);
  rig.step(1);
  EXPECT_EQ(rig.state(id), "steady");
  EXPECT_EQ(held(id), 16);
}

}  // namespace
}  // namespace flextrain::slurm_plugin
