// SPDX-License-Identifier: GPL-2.0-or-later
// Slurm's texts about generic resources and what follows from them for GPUs. Pure; knows no
// slurm/*.h. The forms that occur (gres.conf(5), sbatch(1) --gres, --gpus…, scontrol show -d):
//   a node's   "gpu:8", "gpu:a100:4(S:0-1),nic:1", in use "gpu:a100:2(IDX:0,3)"
//   requests   "gres:gpu:2", "gres:gpu:a100:1,gres:nic:1", "gres:gpu", newer "gres/gpu:a100=2"
//   a job's    "gpu:8(IDX:0-7)" per allocated node
//   totals     "cpu=4,mem=1G,node=2,gres/gpu=16,gres/gpu:a100=16"
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace flextrain::slurm_plugin {

struct GresEntry {
  std::string name;  // "gpu"
  std::string type;  // "a100", "" when untyped
  int64_t count = 0;
  std::vector<int> indices;  // of "(IDX:…)", ascending as written
};

// Every entry that can be read; what cannot be is left out. "(null)" and "" give none.
std::vector<GresEntry> parse_gres(std::string_view text);

struct GpuCount {
  int count = 0;
  std::string type;  // "" when untyped or of several types
};
// The GPUs in a gres text. Where a typed and an untyped entry stand for the same GPUs ("totals"
// form), the larger of the two counts.
GpuCount gpus_in(std::string_view text);

// What a request asks for in all.
struct GpuRequest {
  std::string_view per_job = {}, per_node = {}, per_socket = {}, per_task = {};  // "" = not given
  int nodes = 1;                                                                 // the minimum
  int tasks = 0, tasks_per_node = 0, sockets_per_node = 0;                       // 0 = not given
};
GpuCount requested_gpus(const GpuRequest& request);

}  // namespace flextrain::slurm_plugin
