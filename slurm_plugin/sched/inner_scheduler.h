// SPDX-License-Identifier: GPL-2.0-or-later
// The site's own scheduler plugin, loaded inside ours, so that jobs are scheduled as without us.
#pragma once

#include <string>

struct plugin_context;

namespace flextrain::slurm_plugin {

class InnerScheduler {
 public:
  // Loads `type` ("sched/backfill"), sched/backfill where that cannot be. False when neither can.
  bool load(const std::string& type);
  int reconfigure();
  void unload();

 private:
  bool try_load(const std::string& type);
  plugin_context* context_ = nullptr;
  int (*reconfigure_)() = nullptr;
};

}  // namespace flextrain::slurm_plugin
