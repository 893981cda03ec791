// SPDX-License-Identifier: GPL-2.0-or-later
// Fills the queue of a running Slurm for bench/scale_bench.sh, some hundred submissions a second,
// where sbatch would take a process for each. Run it as root or SlurmUser.
//   scale_queue COUNT UID GID PARTITION WORK_DIR MOST_NODES
// Jobs of 1 to MOST_NODES nodes (many small ones, few large ones), 1, 2, 4 or 8 GPUs a node, time
// limits from minutes to days; the same ones at every run.
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

int main(int argc, char** argv) {
  if (argc != 7) {
    std::fputs("usage: scale_queue COUNT UID GID PARTITION WORK_DIR MOST_NODES\n", stderr);
    return 64;
  }
  const int count = std::atoi(argv[1]);
  const auto most_nodes = static_cast<uint32_t>(std::max(1, std::atoi(argv[6])));
  std::mt19937 random(1);
  char path[] = "PATH=/usr/local/bin:/usr/bin:/bin";
  char* environment[] = {path, nullptr};
  char script[] = "#!/bin/sh\nsleep 3600\n";
  char null[] = "/dev/null";
  for (int i = 0; i < count; ++i) {
    uint32_t nodes = 1;
    while (nodes < most_nodes && random() % 2 == 0) nodes *= 2;
    std::string name = "queued-" + std::to_string(i);
    std::string gres = "gres:gpu:" + std::to_string(1u << random() % 4);
    job_desc_msg_t job;
    slurm_init_job_desc_msg(&job);
    job.user_id = static_cast<uint32_t>(std::atoi(argv[2]));
    job.group_id = static_cast<uint32_t>(std::atoi(argv[3]));
    job.name = name.data();
    job.partition = argv[4];
    job.min_nodes = job.max_nodes = std::min(nodes, most_nodes);
    job.tres_per_node = gres.data();
    job.num_tasks = job.min_nodes;
    job.time_limit = 10u << random() % 10;  // minutes
    job.work_dir = argv[5];
    job.script = script;
    job.std_in = job.std_out = null;
    job.environment = environment;
    job.env_size = 1;
    submit_response_msg_t* reply = nullptr;
    if (slurm_submit_batch_job(&job, &reply) != SLURM_SUCCESS) {
      std::fprintf(stderr, "submission %d: %s\n", i, slurm_strerror(errno));
      return 1;
    }
    slurm_free_submit_response_response_msg(reply);
  }
}
