// SPDX-License-Identifier: GPL-2.0-or-later
// slurm_plugin/sched: libflextrain_core.so, what sched_flextrain.so and job_submit_flextrain.so
// share inside slurmctld: the site's settings, the wrapped scheduler, the controller and the
// channel that wakes it. Everything it owns is created once and never destroyed, since a thread may
// still hang in an RPC when slurmctld unloads the plugins; the libraries are linked -z nodelete.
//
// These functions are all it exports. None throws, none calls an RPC (slurmctld holds its locks in
// each of them), all return SLURM_SUCCESS or an error of slurm_errno.h / errno.
#pragma once

#include <slurm/slurm.h>

#include <cstdint>

extern "C" {
// sched_flextrain: take-over and step-down of this slurmctld as the active one.
int flextrain_core_sched_init() noexcept;
void flextrain_core_sched_fini() noexcept;
int flextrain_core_sched_reconfig() noexcept;

// job_submit_flextrain: also loaded by a stand-by slurmctld.
int flextrain_core_submit_init() noexcept;
int flextrain_core_job_submit(job_desc_msg_t* job, uint32_t submit_uid, char** message) noexcept;
int flextrain_core_job_modify(job_desc_msg_t* change, uint32_t update_uid) noexcept;
}
