// SPDX-License-Identifier: MIT
// What elasticity did, relative to the same trace without it. Pure.
#pragma once

#include <string>
#include <vector>

#include "simulator/replay.h"
#include "simulator/trace.h"

namespace flextrain::simulator {

struct SizeClass {
  int gpus = 0;
  int64_t jobs = 0;
  double njct = 0, nrun = 0, slower = 0;
};

struct Measures {
  int64_t elastic_jobs = 0, rigid_jobs = 0;  // that arrived after the warm-up
  double njct = 0;    // Σ (end − arrival) of elastic jobs over that of the rigid run
  double nrun = 0;    // the same without queueing: Σ (end − start) over Σ duration
  double slower = 0;  // share of elastic jobs that ended later than in the rigid run
  double late = 0;    // share that ended over a minute later
  double longer =
      0;  // of the slower, the share of all that also ran longer; the others began later
  // Queue seconds of rigid jobs: here, and in the rigid run.
  double queue_mean = 0, queue_p95 = 0, queue_over_60 = 0;
  double base_queue_mean = 0, base_queue_p95 = 0, base_queue_over_60 = 0;
  double rq = 1, w60 = 1;       // queue_mean, queue_over_60 over those of the rigid run
  double utilisation = 0;       // GPUs held until the last arrival, of all
  double switches_per_job = 0;  // of elastic jobs
  double pause_gpu_hours = 0;   // held during pauses, whole run
  double completion_mean = 0;   // seconds from arrival to end of elastic jobs
  double wide_queue_mean = 0;   // of rigid jobs of at least ReplayOptions::wide_gpus
  // On nodes: the share of the idle GPUs that was on partly used ones, and the hours in which the
  // queue's head would have fitted into one pool.
  double stranded = 0, fragmented_wait_hours = 0;
  int64_t growths = 0, shrinks = 0;
  std::vector<SizeClass> classes;  // ascending GPUs
};

// Both over the same trace; `base` is the run without elasticity. Jobs that arrive before `warm_up`
// seconds do not count.
Measures measure(const Trace& trace, const ReplayOptions& options, const ReplayResult& run,
                 const ReplayResult& base, double warm_up);

}  // namespace flextrain::simulator
