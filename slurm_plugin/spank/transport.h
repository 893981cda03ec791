// SPDX-License-Identifier: GPL-2.0-or-later
// The names under which spank_flextrain hands the flags to job_submit_flextrain, in the job control
// environment (spank_job_control_setenv(3), job_desc->spank_job_env).
#pragma once

namespace flextrain::slurm_plugin {

inline constexpr const char* kElasticName = "FLEXTRAIN_ELASTIC";         // "pp" or "dp+pp"
inline constexpr const char* kElasticMaxName = "FLEXTRAIN_ELASTIC_MAX";  // "16" or "4x"

// How a job's own flags appear in the environment of what runs inside it: Slurm's record of the
// options, and the job control environment above.
inline constexpr const char* kInheritedOptionPrefix =
    "SLURM_SPANK__SLURM_SPANK_OPTION_flextrain_elastic";
inline constexpr const char* kInheritedControlPrefix = "SLURM_SPANK_FLEXTRAIN_ELASTIC";

}  // namespace flextrain::slurm_plugin
