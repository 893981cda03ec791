// SPDX-License-Identifier: MIT
// One trace under one policy: a pool of GPUs or nodes (simulator/pool.h), gang FIFO with EASY
// backfill, elastic jobs that grow and give back by the live policy's rules. Pure and
// deterministic.
//
// At one instant: job ends, arrivals, the FIFO queue, backfill (every 30 s), growth (every tick).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "policy/policy.h"
#include "simulator/scale_model.h"
#include "simulator/trace.h"

namespace flextrain::simulator {

// What the guard knows of the time that a job still runs: the trainer's progress, the run limit, or
// nothing (it takes the age).
enum class KnownRemaining { kExact, kLimit, kNothing };

struct ReplayOptions {
  int gpus = 0;       // in all
  int node_gpus = 0;  // of a node, divides `gpus`; 0 = one pool without nodes
  int wide_gpus = 0;  // jobs of so many are measured apart; 0 = none
  bool elastic = true;
  double elastic_share = 1;                     // a job is elastic when its draw is below
  std::vector<int> elastic_sizes{32, 64, 256};  // and it asks for one of these; empty = any size
  std::vector<std::string> elastic_users, elastic_accounts;  // and is of one; empty = of anybody
  ScaleMode mode = ScaleMode::kDataAndPipeline;
  PauseModel pause;      // of every switch, with the new count held
  double hand_over = 0;  // seconds from the order until the GPUs of a shrink are free
  double tick = 60, backfill = 30;
  int backfill_depth = 500;
  policy::Parameters policy;
  KnownRemaining remaining = KnownRemaining::kExact;
  // Comparisons: GPUs one entry at a time to whoever gains most per GPU, instead of the policy's
  // order; growth by the rigid run's future instead of a forecast.
  bool marginal_filling = false, oracle = false;
  bool record_placements = false;  // on nodes
};

struct JobOutcome {
  double start = 0, end = 0;
  int switches = 0;
  bool elastic = false;
};

struct SizeChange {
  int64_t job = 0;  // index into Trace::jobs
  double time = 0;
  int gpus = 0;
};

struct NodeShare {
  int node = 0, gpus = 0;
};

// Where a job runs from `time` on; nowhere = it has ended.
struct Placement {
  int64_t job = 0;  // index into Trace::jobs
  double time = 0;
  std::vector<NodeShare> nodes;  // a node at most once
};

struct ReplayResult {
  std::vector<JobOutcome> jobs;  // as Trace::jobs
  int64_t growths = 0, shrinks = 0, refused = 0, never_fit = 0;
  double pause_gpu_seconds = 0;  // GPUs held × seconds of pause
  // Until the last arrival:
  double busy_gpu_seconds = 0;
  double stranded_gpu_seconds = 0;     // free on partly used nodes
  double fragmented_wait_seconds = 0;  // the queue's head would have fitted into one pool
  double makespan = 0;
  std::vector<SizeChange> sizes;
  std::vector<Placement> placements;  // in order, where asked for
  std::vector<float> idle;            // sampled every idle_step seconds
  double idle_step = 60;
};

// `progress` gets the share done in [0, 1] now and then; may be empty. `rigid`: the run of the same
// trace without elasticity, which an oracle needs.
ReplayResult replay(const Trace& trace, const ReplayOptions& options,
                    const std::function<void(double)>& progress = {},
                    const ReplayResult* rigid = nullptr);

}  // namespace flextrain::simulator
