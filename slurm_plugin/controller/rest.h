// SPDX-License-Identifier: GPL-2.0-or-later
// How long the controller rests after a round, so that neither a storm of submissions nor a long
// queue makes it a load of its own. Pure.
#pragma once

#include <chrono>

namespace flextrain::slurm_plugin {

struct RoundCost {
  std::chrono::nanoseconds wall{0};
  std::chrono::nanoseconds cpu{0};  // of the controller's thread; slurmctld's answering costs about
                                    // as much again
};

// No round begins before so long after one of that cost.
//
// Four times its length, and 49 times its processor time (2 % of a core), `tick` at most: one slow
// answer of slurmctld must not silence the controller. Where nothing presses no GPU is out that
// somebody could want back and no job has just become able to grow; what is left to find is a
// growth that was refused before, which nobody waits for. Then what the look took above 10 ms
// counts 1,000 times (0.1 % of a core), four minutes at most: within slurmctld's MinJobAge (300 s)
// no job comes and goes unseen.
std::chrono::nanoseconds rest_after(const RoundCost& cost, bool pressing,
                                    std::chrono::seconds tick);

}  // namespace flextrain::slurm_plugin
