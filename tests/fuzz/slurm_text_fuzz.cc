// SPDX-License-Identifier: GPL-2.0-or-later
// Slurm's own texts, of which users write parts: GRES, host lists, feature expressions.
#include "slurm_plugin/cluster/gres_text.h"
#include "slurm_plugin/controller/node_list.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace flextrain::slurm_plugin;
  const std::string_view text = flextrain::fuzz::text_of(data, size);
  for (const GresEntry& entry : parse_gres(text)) FUZZ_REQUIRE(entry.count >= 0);
  FUZZ_REQUIRE(gpus_in(text).count >= 0);
  std::string_view rest = text;
  GpuRequest request;
  request.per_job = flextrain::fuzz::take(rest, ' ');
  request.per_node = flextrain::fuzz::take(rest, ' ');
  request.per_task = request.per_socket = rest;
  request.nodes = request.tasks = request.tasks_per_node = request.sockets_per_node = 1 << 30;
  FUZZ_REQUIRE(requested_gpus(request).count >= 0);
  if (const auto hosts = expand_host_list(text); hosts.ok()) FUZZ_REQUIRE(hosts->size() <= 65536);
  (void)features_match(text, {"a100", "ib"});
  return 0;
}
