// SPDX-License-Identifier: MIT
// What an emulated cluster is made of: etc/devices/*.toml. The keys and where their values come
// from: docs/emulation.md and comments in the files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace flextrain::trainer {

struct ClusterProfile {
  std::string name;

  // [device]
  std::string device_type;         // the GRES type
  double memory_gib = 80;          // 2^30 bytes
  double matmul_tflops = 100;      // peak of matrix products at the emulated precision, 10^12
  double matmul_efficiency = 0.6;  // of the peak, for large products
  double attention_efficiency = 0.3;
  double memory_gb_per_s = 1000;  // 10^9 bytes/s
  double launch_us = 4;           // of each kernel
  double host_gb_per_s = 20;      // between host and device

  // [network]: devices of a node each have a port of their own; nodes share their adapters and,
  // with nodes_per_switch > 0, the uplinks of their switch.
  int gpus_per_node = 8;
  double near_gb_per_s = 200, near_latency_us = 5;
  int adapters_per_node = 8;
  double adapter_gb_per_s = 25, far_latency_us = 10;
  int nodes_per_switch = 0;  // 0 = no bottleneck above the nodes
  double uplink_gb_per_s = 100;

  // [uneven]: every nodes_apart-th node is `speed` times as fast; 0 = none.
  int nodes_apart = 0;
  double speed = 1;

  // [jitter]: relative standard deviations of a kernel, of a device over the whole run, and of a
  // message; what the planner cannot know.
  double kernel = 0, device = 0, link = 0;
  uint64_t seed = 1;

  int node_of(int rank) const { return rank / gpus_per_node; }
};

// kInvalidArgument "file:line: …" names the key, its value and what would do.
Result<ClusterProfile> parse_cluster_profile(std::string_view text, std::string_view file_name);
Result<ClusterProfile> read_cluster_profile(const std::string& path);

}  // namespace flextrain::trainer
