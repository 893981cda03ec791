// SPDX-License-Identifier: GPL-2.0-or-later
// flextrain.conf: every key of the site's configuration, its default and its bounds. Pure.
// etc/flextrain.conf.example and docs/configuration.md describe the same keys; a test compares the
// three.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/status.h"
#include "policy/policy.h"

namespace flextrain::slurm_plugin {

struct ControllerConfig {
  bool enabled = true;
  std::vector<std::string> partitions;             // elasticity is on here; empty = everywhere
  std::string inner_scheduler = "sched/backfill";  // what sched_flextrain.so wraps
  std::string endpoint_address;                    // "" = every interface
  int endpoint_port = 6822;                        // 0 = any free one (tests)
  std::string metrics_address = "127.0.0.1";       // "" = every interface
  int metrics_port = 0;      // of /metrics; 0 = off, -1 = any free one (tests)
  std::string munge_socket;  // "" = munge's own default
  std::string database_path = "/var/lib/flextrain/flextrain.db";
  int64_t tick_seconds = 10;
  int64_t tick_limit_seconds = 20;        // a round that takes longer switches growth off
  int64_t wake_delay_milliseconds = 100;  // from a submission to the first look at the queue

  int64_t lease_seconds = 300;  // of a companion; Slurm rounds up to minutes
  int64_t renew_seconds = 120;  // renewed when less than this is left
  bool companion_preemptable = false;
  std::string companion_partition, companion_qos;  // "" = the base's own
  int64_t companion_signal_seconds = 30;           // USR1 so long before a lease ends, 0 = never
  std::string companion_output = "/dev/null";      // as sbatch --output
  std::string opt_out_nodes_text;                  // hostlist: no companion goes there
  std::set<std::string> opt_out_nodes;
  bool share_base_nodes = false;  // companions on the base's own nodes too, where GPUs are idle

  int64_t companion_start_timeout = 60;  // submitted → all running, registered, checked
  int64_t grow_timeout = 300;            // order → report
  int64_t shrink_timeout = 120;
  int64_t agent_timeout = 90;    // a base agent this long silent is gone
  int max_scaling_failures = 3;  // so many in a row, and a job is left alone; 0 = never

  std::string policy_preset = "recommended";
  policy::Parameters policy;  // of the preset, changed by the keys that are given

  int64_t retention_days = 90;
  LogLevel log_level = LogLevel::kInfo;
};

// One documented key. `default_value` and `value` are in the file's own notation.
struct ConfigKey {
  std::string name, default_value, value;
};
// Every key with its value in `config`, in the order of the example file.
std::vector<ConfigKey> describe_config(const ControllerConfig& config);

// `file_name` is for messages. kInvalidArgument "file:line: …" for an unknown key, a bad value or
// values that contradict each other; keys that are absent keep their defaults.
Result<ControllerConfig> parse_controller_config(std::string_view text, std::string_view file_name);
// Reads the file; kNotFound when there is none.
Result<ControllerConfig> load_controller_config(const std::string& path);

// Whether elasticity is on in this partition.
bool elastic_partition(const ControllerConfig& config, std::string_view partition);

}  // namespace flextrain::slurm_plugin
