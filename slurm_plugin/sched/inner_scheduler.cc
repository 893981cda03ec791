// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm_plugin/sched/inner_scheduler.h"

#include "base/log.h"
#include "slurm_plugin/sched/slurm_internal.h"

namespace flextrain::slurm_plugin {

namespace {
constexpr const char* kDefault = "sched/backfill";
}

bool InnerScheduler::try_load(const std::string& type) {
  if (type == "sched/flextrain" || !type.starts_with("sched/")) {
    log_error("InnerScheduler={} cannot be: it names the site's own scheduler, e.g. {}", type,
              kDefault);
    return false;
  }
  // Slurm fills the operations in the order of their names.
  void* operations[1] = {nullptr};
  const char* names[1] = {"sched_p_reconfig"};
  context_ = plugin_context_create("sched", type.c_str(), operations, names, sizeof names);
  if (!context_) {
    log_error("InnerScheduler={} cannot be loaded", type);
    return false;
  }
  reconfigure_ = reinterpret_cast<int (*)()>(operations[0]);
  return true;
}

bool InnerScheduler::load(const std::string& type) {
  if (context_) return true;
  if (!try_load(type) && (type == kDefault || !try_load(kDefault))) return false;
  return true;
}

int InnerScheduler::reconfigure() { return reconfigure_ ? reconfigure_() : SLURM_SUCCESS; }

void InnerScheduler::unload() {
  if (context_) plugin_context_destroy(context_);
  context_ = nullptr;
  reconfigure_ = nullptr;
}

}  // namespace flextrain::slurm_plugin
