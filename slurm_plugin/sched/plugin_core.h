// SPDX-License-Identifier: GPL-2.0-or-later
// The one object behind core.h. Thread-safe; none of its methods blocks on an RPC.
//
//            init (broken file or Enabled=no; a controller with Enabled=no runs where a database
//            is, and gives back what an earlier run left)
//   idle ───────────────────────────────────────► off
//    │ init                          reconfigure ▲ │ reconfigure
//    └──────────────────────────────► on ────────┘ │ (file mended, Enabled=yes)
//                    reconfigure ↻ ▲ └─────────────┘
//   fini: from any state to idle; a take-over later begins anew.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "slurm_plugin/controller/controller.h"
#include "slurm_plugin/sched/het_cure.h"
#include "slurm_plugin/sched/inner_scheduler.h"
#include "slurm_plugin/sched/site_file.h"
#include "slurm_plugin/sched/token_registry.h"

namespace flextrain::slurm_plugin {

class PluginCore {
 public:
  static PluginCore& instance();  // never destroyed

  // Re-reads flextrain.conf beside slurm.conf. Only where slurm_conf is stable: init and reconfig.
  void read_settings(const std::string& slurm_conf_path);
  SiteSettings settings() const;

  struct Host {  // the slurmctld we run in, copied while slurm_conf is stable
    std::string cluster_name, slurm_conf_path;
    uint32_t slurm_uid = 0;
  };
  bool start_scheduling(Host host);  // false: no scheduler could be loaded
  int reconfigure();                 // after read_settings()
  void stop_scheduling();

  void wake() noexcept;
  const TokenRegistry& tokens() const { return *tokens_; }

 private:
  PluginCore() = default;
  void start_controller_locked();

  mutable std::mutex settings_mutex_;
  SiteFile file_;                // the settings in force
  std::string last_complaint_;   // so that one fault is one log line
  bool have_good_file_ = false;  // a later broken one does not replace it

  std::mutex mutex_;  // of what follows; never held during anything slow
  bool active_ = false;
  Host host_;
  std::shared_ptr<std::atomic<bool>> stopping_;  // one per start: its threads may outlive a stop
  std::shared_ptr<Controller> controller_;
  // The same for the hooks, which slurmctld calls under its own locks: they wait for nobody.
  std::atomic<std::shared_ptr<Controller>> for_hooks_;
  InnerScheduler inner_;
  HetCure het_cure_;
  std::shared_ptr<TokenRegistry> tokens_ = std::make_shared<TokenRegistry>();
};

}  // namespace flextrain::slurm_plugin
