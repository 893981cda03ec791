// SPDX-License-Identifier: GPL-2.0-or-later
// slurmctld accepts heterogeneous jobs only under SchedulerType=sched/backfill: at the first such
// submission it compares the name and keeps the answer for good. We do run backfill, under another
// name. So:
//   init            slurm_conf.schedtype := "sched/backfill" (slurmctld holds its locks, its RPC
//                   port is not open yet: nobody can ask too early)
//   a thread then   submits a heterogeneous job without components, which slurmctld refuses after
//                   it has asked and kept the answer; then schedtype := the true name again
// It takes about a second, during which `scontrol show config` shows sched/backfill. The two
// strings are never freed by us, so a concurrent reader is safe; a reconfigure in between, which
// frees the one in place and would keep the borrowed name, is mended in sched_p_reconfig.
#pragma once

#include <atomic>
#include <memory>

namespace flextrain::slurm_plugin {

class HetCure {
 public:
  // In sched init. `stopping` turns true when no RPC may begin any more.
  void start(std::shared_ptr<const std::atomic<bool>> stopping);
  // In sched_p_reconfig.
  void after_reconfigure();

 private:
  enum class State { kIdle, kBorrowed, kDone };
  void prime(const std::atomic<bool>& stopping);
  void give_name_back();

  std::atomic<State> state_{State::kIdle};  // kDone outlives a fail-over: the answer is kept
  char* borrowed_ = nullptr;                // "sched/backfill"
  char* own_ = nullptr;                     // "sched/flextrain"
};

}  // namespace flextrain::slurm_plugin
