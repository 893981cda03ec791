// SPDX-License-Identifier: MIT
// A job on two nodes of which one does not answer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "rig.h"

namespace flextrain::agent {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Nodes, AreWaitedForWithSlurmsWordAndThenUsed) {
  Rig rig;
  const std::string real_srun = rig.read("bin/srun");
  rig.write(
      "bin/scontrol",
      "#!/bin/bash\n[ $1 = ping ] || echo 'JobId=77 SubmitTime=2026-01-01T00:00:00 NodeList=" +
          rig.host() + ",localhost JOB_GRES=gpu:2 Nodes=" + rig.host() +
          " CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:0) Nodes=localhost CPU_IDs=0 Mem=0 "
          "GRES=gpu:1(IDX:0) Power='\n");
  rig.set_environment("SLURM_JOB_NODELIST", rig.host() + ",localhost");
  rig.start_base(1);
  ASSERT_TRUE(wait_until([&] { return rig.launches() == 1 && rig.last_size() == 2; }));
  rig.write("bin/srun",
            "#!/bin/bash\necho 'srun: error: first' >&2\n"
            "echo 'srun: error: Requested node configuration is not available' >&2\nexit 1\n");
  ::kill(rig.last_trainer(), SIGKILL);
  ASSERT_TRUE(wait_until([&] { return rig.log().find("does not answer") != std::string::npos; }));
  EXPECT_THAT(rig.log(), HasSubstr("a node of the job does not answer (srun: error: Requested node "
                                   "configuration is not available): waiting"));
  EXPECT_THAT(rig.log(), Not(HasSubstr("first"))) << "in the control folder, not in the log";
  rig.write("bin/srun", real_srun);
  ASSERT_TRUE(wait_until([&] { return rig.launches() == 2; }));
  EXPECT_EQ(rig.last_size(), 2);
  EXPECT_THAT(rig.log(), HasSubstr("every node of the job answers again"));
}

}  // namespace
}  // namespace flextrain::agent
