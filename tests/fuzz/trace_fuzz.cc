// SPDX-License-Identifier: MIT
// Job traces for `sflex simulate`. What is read and short enough is replayed, in one pool and on
// nodes: every job that fits runs and ends.
#include "simulator/read_trace.h"
#include "simulator/replay.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace flextrain;
  using namespace flextrain::simulator;
  const auto read = read_trace(fuzz::text_of(data, size), "trace", {});
  if (!read.ok()) return 0;
  const Trace& trace = read->trace;
  constexpr double kMonth = 30 * 86400;
  double work = trace.jobs.back().arrival;
  for (const TraceJob& job : trace.jobs) {
    FUZZ_REQUIRE(job.gpus > 0);
    FUZZ_REQUIRE(job.arrival >= 0 && job.duration >= 0 && job.limit >= 0);
    work += job.duration;
  }
  if (work > kMonth || trace.jobs.size() > 100) return 0;
  for (const int node_gpus : {0, 4}) {
    ReplayOptions options;
    options.gpus = 64;
    options.node_gpus = node_gpus;
    options.elastic_sizes = {};
    options.hand_over = 10;
    const ReplayResult result = replay(trace, options);
    for (size_t i = 0; i < trace.jobs.size(); ++i) {
      if (trace.jobs[i].gpus > options.gpus) continue;
      FUZZ_REQUIRE(result.jobs[i].start >= trace.jobs[i].arrival);
      FUZZ_REQUIRE(result.jobs[i].end >= result.jobs[i].start);
    }
  }
  return 0;
}
