// SPDX-License-Identifier: MIT
#include "trainer/emulation/cluster_profile.h"

#include "trainer/config/config_reader.h"

namespace flextrain::trainer {
namespace {

constexpr size_t kMostBytes = 1 << 20;

}  // namespace

Result<ClusterProfile> parse_cluster_profile(std::string_view text, std::string_view file_name) {
  ClusterProfile c;
  constexpr double kMost = 1e9;
  const std::vector<ConfigField> fields = {
      {"cluster", "name", &c.name},

      {"device", "type", &c.device_type},
      {"device", "memory_gib", &c.memory_gib, 0, kMost, true},
      {"device", "matmul_tflops", &c.matmul_tflops, 0, kMost, true},
      {"device", "matmul_efficiency", &c.matmul_efficiency, 0, 1, true},
      {"device", "attention_efficiency", &c.attention_efficiency, 0, 1, true},
      {"device", "memory_gb_per_s", &c.memory_gb_per_s, 0, kMost, true},
      {"device", "launch_us", &c.launch_us, 0, kMost},
      {"device", "host_gb_per_s", &c.host_gb_per_s, 0, kMost, true},

      {"network", "gpus_per_node", &c.gpus_per_node, 1, 1024},
      {"network", "near_gb_per_s", &c.near_gb_per_s, 0, kMost, true},
      {"network", "near_latency_us", &c.near_latency_us, 0, kMost},
      {"network", "adapters_per_node", &c.adapters_per_node, 1, 1024},
      {"network", "adapter_gb_per_s", &c.adapter_gb_per_s, 0, kMost, true},
      {"network", "far_latency_us", &c.far_latency_us, 0, kMost},
      {"network", "nodes_per_switch", &c.nodes_per_switch, 0, 1 << 20},
      {"network", "uplink_gb_per_s", &c.uplink_gb_per_s, 0, kMost, true},

      {"uneven", "nodes_apart", &c.nodes_apart, 0, 1 << 20},
      {"uneven", "speed", &c.speed, 0.01, 100},

      {"jitter", "kernel", &c.kernel, 0, 0.5},
      {"jitter", "device", &c.device, 0, 0.5},
      {"jitter", "link", &c.link, 0, 0.5},
      {"jitter", "seed", &c.seed, 0, 1e15},
  };
  RETURN_IF_ERROR(parse_fields(text, file_name, fields));
  if (c.adapters_per_node > c.gpus_per_node) {
    return invalid_argument(
        "{}: network.adapters_per_node ({}) must not be above gpus_per_node ({})", file_name,
        c.adapters_per_node, c.gpus_per_node);
  }
  return c;
}

Result<ClusterProfile> read_cluster_profile(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, read_input_file(path, kMostBytes));
  return parse_cluster_profile(text, path);
}

}  // namespace flextrain::trainer
