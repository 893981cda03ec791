// SPDX-License-Identifier: GPL-2.0-or-later
// What slurmctld exports to its plugins and no public header declares. Only symbols whose types are
// public or opaque, the same from 22.05 on.
#pragma once

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>

#include <cstddef>

extern "C" {
struct plugin_context;
// Loads plugin `type` ("sched/backfill") of `kind` ("sched") and resolves `names` into `pointers`;
// `size` is that of the names array in bytes. Calls its init(). Null where that fails.
plugin_context* plugin_context_create(const char* kind, const char* type, void* pointers[],
                                      const char* names[], size_t size);
int plugin_context_destroy(plugin_context* context);  // calls its fini()

extern slurm_conf_t slurm_conf;  // strings only inside init and sched_p_reconfig: see het_cure.h
// Holds off a re-read of slurm.conf meanwhile; weak, as it is not part of the API.
slurm_conf_t* slurm_conf_lock() __attribute__((weak));
void slurm_conf_unlock() __attribute__((weak));

extern char* default_part_name __attribute__((weak));  // stable while job_submit runs

char* slurm_xstrdup(const char* text);
void slurm_xfree(void** pointer);

void slurm_info(const char* format, ...) __attribute__((format(printf, 1, 2)));
void slurm_error(const char* format, ...) __attribute__((format(printf, 1, 2)));
void slurm_debug(const char* format, ...) __attribute__((format(printf, 1, 2)));
}
