// SPDX-License-Identifier: GPL-2.0-or-later
// flextrain.conf as the controller and as the agents read it, slurm.conf and a list of hosts.
#include "protocol/discovery.h"
#include "slurm_plugin/controller/controller_config.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace flextrain;
  const std::string_view text = fuzz::text_of(data, size);
  if (const auto config = slurm_plugin::parse_controller_config(text, "flextrain.conf");
      config.ok()) {
    // The values as shown are values as read.
    std::string shown;
    for (const auto& key : slurm_plugin::describe_config(*config)) {
      if (!key.value.empty()) shown += key.name + "=" + key.value + "\n";
    }
    FUZZ_REQUIRE(slurm_plugin::parse_controller_config(shown, "shown").ok());
    (void)slurm_plugin::elastic_partition(*config, "gpu");
  }
  (void)protocol::endpoint_port(text, "flextrain.conf");
  (void)protocol::parse_slurm_config(text, 6822);
  if (const auto hosts = protocol::parse_host_list(text, 6822); hosts.ok()) {
    for (const auto& host : *hosts) FUZZ_REQUIRE(!host.host.empty() && host.port > 0);
  }
  return 0;
}
