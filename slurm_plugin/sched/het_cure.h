// SPDX-License-Identifier: GPL-2.0-or-later
// slurmctld accepts heterogeneous jobs only under SchedulerType=sched/backfill: at the first such
// submission it compares the name and keeps the answer for good. We do run backfill, under another
// name. So, once per process:
//
//   init     marks slurm_conf.last_update, which slurmctld sets when it has read its configuration;
//            until then it must see the true name (it compares old and new, a change is fatal)
//   thread   waits for that moment, which comes before the RPC port is served, so nobody can have
//            asked; slurm_conf.schedtype := "sched/backfill"; submits a heterogeneous job without
//            meaning, which slurmctld refuses after it has asked and kept the answer; schedtype :=
//            the true name again
//
// The name is borrowed for some milliseconds of slurmctld serving requests. The
// strings are never freed by us, so a concurrent reader is safe. A reconfigure in that short time
// reports "SchedulerType change" and keeps the borrowed name: the thread mends it afterwards.
#pragma once

#include <atomic>
#include <memory>

namespace flextrain::slurm_plugin {

class HetCure {
 public:
  // In sched init. `stopping` turns true when no RPC may begin any more.
  void start(std::shared_ptr<const std::atomic<bool>> stopping);
  // In sched_p_reconfig.
  void note_reconfigure();

 private:
  enum class State { kIdle, kWaiting, kBorrowed, kDone };
  bool wait_for_configuration(const std::atomic<bool>& stopping);
  void run(const std::atomic<bool>& stopping);
  void give_name_back();
  void mend_name();

  std::atomic<State> state_{State::kIdle};  // kDone outlives a fail-over: the answer is kept
  std::atomic<bool> reconfigured_{false};   // while the name was borrowed
  char* borrowed_ = nullptr;                // "sched/backfill"
  char* own_ = nullptr;                     // "sched/flextrain"
};

}  // namespace flextrain::slurm_plugin
