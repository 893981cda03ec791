// SPDX-License-Identifier: GPL-2.0-or-later
// job_submit_flextrain.so: JobSubmitPlugins=flextrain. Slurm's plugin symbols and nothing else; the
// rules are in elastic_check.h, the work in libflextrain_core.so (core.h).
#include <slurm/slurm.h>

#include "slurm_plugin/sched/core.h"

struct job_record;  // slurmctld's own, opaque to us

extern "C" {
extern const char plugin_name[];
extern const char plugin_type[];
extern const uint32_t plugin_version;
int init();
void fini();
int job_submit(job_desc_msg_t* job, uint32_t submit_uid, char** message);
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 2, 0)
int job_modify(job_desc_msg_t* change, job_record* job, uint32_t submit_uid, char** message);
#else
int job_modify(job_desc_msg_t* change, job_record* job, uint32_t submit_uid);
#endif
}
const char plugin_name[] = "flextrain: checks --elastic and --elastic-max";
const char plugin_type[] = "job_submit/flextrain";
const uint32_t plugin_version = SLURM_VERSION_NUMBER;

int init() { return flextrain_core_submit_init(); }
void fini() {}

int job_submit(job_desc_msg_t* job, uint32_t submit_uid, char** message) {
  return flextrain_core_job_submit(job, submit_uid, message);
}

#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 2, 0)
int job_modify(job_desc_msg_t* change, job_record*, uint32_t submit_uid, char**) {
#else
int job_modify(job_desc_msg_t* change, job_record*, uint32_t submit_uid) {
#endif
  return flextrain_core_job_modify(change, submit_uid);
}
