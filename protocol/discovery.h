// SPDX-License-Identifier: MIT
// Where the controller is and which uid it has. Reads the environment, slurm.conf, flextrain.conf
// and asks `scontrol show config`; writes nothing. Thread-safe as far as getenv is.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace flextrain::protocol {

struct HostPort {
  std::string host;  // name or address
  int port = 0;
  bool operator==(const HostPort&) const = default;
};

struct ControllerLocation {
  std::vector<HostPort> hosts;  // the SlurmctldHost list, primary first
  uid_t slurm_uid = 0;          // SlurmUser
  std::string cluster;          // ClusterName, "" = unknown
};

// "host", "host:port", "[::1]:port", several separated by commas. kInvalidArgument names the part.
Result<std::vector<HostPort>> parse_host_list(std::string_view text, int default_port);

// The same fields out of the text of `scontrol show config` or of slurm.conf (both spell them
// Key=Value; "SlurmctldHost[0] = ctl(10.0.0.1)", "SlurmUser = slurm(64030)"). Pure but for looking
// up a user by name. kNotFound when no SlurmctldHost is in it.
Result<ControllerLocation> parse_slurm_config(std::string_view text, int port);

// EndpointPort of flextrain.conf's text, kDefaultPort when it is not set.
Result<int> endpoint_port(std::string_view flextrain_conf, std::string_view file_name);

// FLEXTRAIN_CONTROLLER (host[:port], comma-separated) where set; else the SlurmctldHost list of
// slurm.conf (SLURM_CONF, /etc/slurm, /run/slurm/conf), or of `scontrol show config` where that
// file includes others or is absent. SlurmUser comes from the same place, the port is EndpointPort
// of flextrain.conf beside slurm.conf. May take 10 s where slurmctld must be asked and is down.
// kNotFound says what was looked at.
Result<ControllerLocation> discover_controller();

}  // namespace flextrain::protocol
