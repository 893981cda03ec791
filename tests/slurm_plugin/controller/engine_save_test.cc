// SPDX-License-Identifier: GPL-2.0-or-later
// A trainer in a save that nobody asked for: its agent says so, and others give GPUs back first.
#include "engine_fixture.h"

namespace flextrain::slurm_plugin {
namespace {

class EngineSaveTest : public EngineTest {
 protected:
  // Two jobs, each grown by one node of 8 GPUs; nothing is idle.
  void two_grown_jobs() {
    begin(4);
    first = rig.submit(1001, 8);
    second = rig.submit(2002, 8);
    rig.step(1);
    for (const uint32_t id : {first, second}) {
      TestAgent agent(rig, id);
      agent.register_base();
      agent.table({8, 16});
      agent.progress(1, 1'000'000, 1, 8);
    }
    const auto poll_first = TestAgent(rig, first).poll(),
               poll_second = TestAgent(rig, second).poll();
    rig.step();
    register_companions();
    for (const auto& [id, poll] : {std::pair{first, poll_first}, std::pair{second, poll_second}}) {
      ASSERT_TRUE(poll->answered());
      const protocol::Order order = order_of(*poll);
      TestAgent(rig, id).report(order.order_id, true, order.allocations, 4);
      ASSERT_EQ(held(id), 16);
      TestAgent(rig, id).progress(2, 1'000'000, 1, 16);
    }
  }
  void wait_for_a_node() {
    rig.submit(3003, 8, 1, false);
    rig.step(1);
  }

  uint32_t first = 0, second = 0;
};

TEST_F(EngineSaveTest, WhoeverSavesIsSparedWhereAnotherSuffices) {
  two_grown_jobs();
  TestAgent(rig, first).progress(3, 1'000'000, 1, 16, "saving");
  wait_for_a_node();
  EXPECT_EQ(rig.state(first), "steady");
  EXPECT_EQ(rig.state(second), "shrinking");
}

// The same without a save: it is the save that makes the difference.
TEST_F(EngineSaveTest, WhoeverHasSavedIsNotSpared) {
  two_grown_jobs();
  TestAgent(rig, first).progress(3, 1'000'000, 1, 16, "saving");
  TestAgent(rig, first).progress(4, 1'000'000, 1, 16, "running");
  wait_for_a_node();
  EXPECT_EQ(rig.state(first), "shrinking");
  EXPECT_EQ(rig.state(second), "steady");
}

TEST_F(EngineSaveTest, WhoeverSavesGivesWhereNobodyElseCan) {
  two_grown_jobs();
  for (const uint32_t id : {first, second})
    TestAgent(rig, id).progress(3, 1'000'000, 1, 16, "saving");
  wait_for_a_node();
  EXPECT_EQ(rig.state(first), "shrinking");
  EXPECT_EQ(rig.state(second), "steady");
}

// A trainer that saves tells its size as well as one that steps.
TEST_F(EngineSaveTest, ASaveAtAnotherSizeIsNoSteadyState) {
  two_grown_jobs();
  TestAgent(rig, first).progress(3, 1'000'000, 1, 8, "running");
  const int64_t since = rig.job(first)->size_mismatch_since;
  EXPECT_NE(since, 0);
  rig.cluster.advance(1);
  TestAgent(rig, first).progress(3, 1'000'000, 1, 8, "saving");
  EXPECT_EQ(rig.job(first)->size_mismatch_since, since);
  TestAgent(rig, first).progress(4, 1'000'000, 1, 16, "saving");
  EXPECT_EQ(rig.job(first)->size_mismatch_since, 0);
}

}  // namespace
}  // namespace flextrain::slurm_plugin
