// SPDX-License-Identifier: GPL-2.0-or-later
// What the engine's tests begin with: a steady base, a growth carried through.
#pragma once

#include "engine_rig.h"

namespace flextrain::slurm_plugin {

class EngineTest : public ::testing::Test {
 protected:
  void begin(int nodes) {
    rig.nodes(nodes);
    rig.start();
  }
  // A base of 8 GPUs on n1 whose agent has registered, with a table up to 4x and long to run.
  uint32_t steady_base(uint32_t user = 1001) {
    const uint32_t id = rig.submit(user, 8);
    rig.step(1);
    TestAgent agent(rig, id);
    const auto reply = agent.register_base();
    EXPECT_TRUE(reply->answered());
    EXPECT_EQ(reply->answer_->error, "");
    agent.table({8, 16, 24, 32});
    agent.progress(1, 1'000'000, 1, 8);
    EXPECT_EQ(rig.state(id), "steady");
    return id;
  }
  void register_companions(const std::string& fingerprint = "cpu/avx2") {
    for (const JobRecord& companion : rig.cluster.companions()) {
      if (companion.state == JobState::kRunning) {
        TestAgent(rig, companion.job_id).register_companion(fingerprint);
      }
    }
  }
  // Grows `id` by whatever the policy finds; returns the order.
  protocol::Order grow(uint32_t id, double overhead = 4) {
    TestAgent agent(rig, id);
    const auto poll = agent.poll();
    rig.step();
    EXPECT_EQ(rig.state(id), "companions-pending");
    register_companions();
    EXPECT_TRUE(poll->answered());
    if (!poll->answered()) return {};
    const protocol::Order order = order_of(*poll);
    EXPECT_EQ(order.kind, protocol::OrderKind::kGrow);
    EXPECT_EQ(rig.state(id), "switching");
    agent.report(order.order_id, true, order.allocations, overhead);
    EXPECT_EQ(rig.state(id), "steady");
    return order;
  }
  int held(uint32_t id) { return rig.job(id) == nullptr ? 0 : rig.job(id)->held_gpus(); }

  Rig rig;
};

}  // namespace flextrain::slurm_plugin
