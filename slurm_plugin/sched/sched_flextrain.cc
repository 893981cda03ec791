// SPDX-License-Identifier: GPL-2.0-or-later
// sched_flextrain.so: SchedulerType=sched/flextrain. Slurm's plugin symbols and nothing else; the
// work is in libflextrain_core.so (core.h).
#include <slurm/slurm.h>

#include "slurm_plugin/sched/core.h"

extern "C" {
extern const char plugin_name[];
extern const char plugin_type[];
extern const uint32_t plugin_version;
int init();
void fini();
int sched_p_reconfig();
}
// Definitions apart from the block: inside extern "C" { } a const has internal linkage.
const char plugin_name[] = "flextrain: elastic training over the site's own scheduler";
const char plugin_type[] = "sched/flextrain";
const uint32_t plugin_version = SLURM_VERSION_NUMBER;

int init() { return flextrain_core_sched_init(); }
void fini() { flextrain_core_sched_fini(); }
int sched_p_reconfig() { return flextrain_core_sched_reconfig(); }
