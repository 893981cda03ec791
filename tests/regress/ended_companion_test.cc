// SPDX-License-Identifier: MIT
// What went wrong: a companion that had ended by itself while its growth was pending was told to
// leave all the same, so that for a round its GPUs counted twice, as idle and as coming back: a
// waiting job seemed to fit and nothing was taken back for it, and `sflex idle` showed more GPUs
// than the node has.
#include "tests/slurm_plugin/controller/engine_fixture.h"

namespace flextrain::slurm_plugin {
namespace {

TEST_F(EngineTest, ACompanionThatHasEndedDoesNotLeaveAgain) {
  begin(2);
  const uint32_t id = steady_base();
  rig.step();
  ASSERT_EQ(rig.state(id), "companions-pending");
  rig.cluster.finish(rig.cluster.companions().at(0).job_id, 1);
  rig.step(1);
  EXPECT_EQ(rig.state(id), "steady");
  EXPECT_THAT(rig.cluster.cancelled(), ::testing::IsEmpty());
  EXPECT_TRUE(rig.job(id)->companions.empty());
  const auto live = rig.engine->live();
  for (const Json& row : *live->idle) EXPECT_EQ(row.at("expanded"), 0) << row.dump();
}

}  // namespace
}  // namespace flextrain::slurm_plugin
