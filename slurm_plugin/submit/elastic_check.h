// SPDX-License-Identifier: GPL-2.0-or-later
// slurm_plugin/submit: checks the elastic flags of a submission and writes them as one token into
// the job's admin_comment. This part is pure: what job_submit knows → what it answers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "slurm_plugin/controller/controller_config.h"

namespace flextrain::slurm_plugin {

// What the site says about elasticity now.
struct SiteSettings {
  bool on = false;          // the controller works
  std::string off_reason;   // one line, when not on
  ControllerConfig config;  // the last good one, or the defaults
};

struct Submission {
  std::optional<std::string> elastic, elastic_max;  // as spank_flextrain handed them over
  bool batch = false;                               // sbatch, not srun or salloc
  bool heterogeneous = false;
  int gpus = 0;                         // the request's minimum in all
  std::vector<std::string> partitions;  // as asked for, or the default one; {} = unknown
  std::string admin_comment;            // as it stands
  bool privileged = false;              // root or SlurmUser submits
};

struct Verdict {
  std::string refusal;  // one line for the user; "" = accepted
  // What admin_comment must become, when it must change.
  std::optional<std::string> admin_comment;
  std::string note;   // one line for the user of an accepted job; "" = none
  bool wake = false;  // the controller should look at the queue
};

Verdict check_submission(const Submission& submission, const SiteSettings& site);

// An update of admin_comment by an administrator. `known_token` is the job's token as last seen, ""
// = not elastic. Nullopt: leave the new text as it is; it has a token of its own or needs none.
std::optional<std::string> keep_token(const std::string& new_comment,
                                      const std::string& known_token);

}  // namespace flextrain::slurm_plugin
