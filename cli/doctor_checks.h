// SPDX-License-Identifier: MIT
// The single checks of `sflex doctor`. Private to cli/.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/doctor.h"

namespace flextrain::cli {

// What several checks need, looked at once.
struct Site {
  bool slurm_answers = false;
  std::string slurm_error;                    // why `scontrol show config` failed
  std::string slurm_conf;                     // path
  std::map<std::string, std::string> config;  // of slurm.conf, keys in lower case
  std::string flextrain_conf;                 // path
  std::string flextrain_error;                // of reading or parsing it; "" = fine or absent
  bool flextrain_conf_exists = false;
  std::map<std::string, std::string> settings;  // of flextrain.conf, keys in lower case
  bool on_controller_host = false;
};
Site look_at_site(Environment& environment);

using Check = void (*)(Environment&, const Site&, std::vector<Finding>&);
void check_slurm(Environment&, const Site&, std::vector<Finding>&);
void check_scheduler(Environment&, const Site&, std::vector<Finding>&);
void check_plugins(Environment&, const Site&, std::vector<Finding>&);
void check_flags(Environment&, const Site&, std::vector<Finding>&);
void check_configuration(Environment&, const Site&, std::vector<Finding>&);
void check_munge(Environment&, const Site&, std::vector<Finding>&);
void check_controller(Environment&, const Site&, std::vector<Finding>&);
void check_database(Environment&, const Site&, std::vector<Finding>&);
void check_partitions(Environment&, const Site&, std::vector<Finding>&);
void check_gpus(Environment&, const Site&, std::vector<Finding>&);
void check_preemption(Environment&, const Site&, std::vector<Finding>&);
void check_programs(Environment&, const Site&, std::vector<Finding>&);

inline constexpr Check kChecks[] = {check_slurm,      check_scheduler,     check_plugins,
                                    check_flags,      check_configuration, check_munge,
                                    check_controller, check_database,      check_partitions,
                                    check_gpus,       check_preemption,    check_programs};

}  // namespace flextrain::cli
