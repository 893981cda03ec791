// SPDX-License-Identifier: MIT
// The scale table: what a job would gain from every feasible GPU count, with the Plan for each.
// Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "planner/plan.h"

namespace flextrain::planner {

// Key of an entry: device type × GPUs per node × nodes. nodes = 0 means "any spread".
struct ResourceShape {
  std::string device_type;
  int gpus_per_node = 0;  // 0 = any
  int nodes = 0;          // 0 = any
  int gpus = 0;           // total
};

enum class PredictionSource { kModel, kProfile, kMeasured };

struct ScaleEntry {
  ResourceShape shape;
  Plan plan;
  double step_seconds = 0;  // predicted or measured
  double tokens_per_second = 0;
  int64_t peak_memory_bytes = 0;  // of the fullest rank
  PredictionSource source = PredictionSource::kModel;
  double model_step_seconds = 0;      // the closed formula's value, for the filter's rules 1 and 2
  double predicted_step_seconds = 0;  // 0 = never predicted; stays when a measurement replaces it
  double overhead_seconds = 0;  // T_overhead of starting at this size, 0 = phases not measured
  bool fits = true;  // false: more than the memory limit, whatever is tried with this GPU count
  bool kept = true;
  std::string drop_rule;  // "" when kept, else which rule dropped it and the figures
};

struct ScaleTable {
  static constexpr int kVersion = 1;
  std::vector<ScaleEntry> entries;  // ascending GPUs; best throughput per count; dropped ones stay
  int measured_gpus = 0;            // GPUs the profile was taken with
  std::string note;  // "" or what a reader must know, as that every growth was dropped
};

// What one rank-independent profile holds. Times in seconds, memory in bytes, per global layer id;
// measured over whole micro-batches.
struct LayerProfile {
  double forward = 0, backward = 0;  // of one micro-batch; backward with the weight gradients
  int64_t static_bytes = 0;          // weights, gradients, moments
  int64_t activation_bytes = 0;      // saved by one micro-batch's forward until its backward
  // Parts of the above, 0 = not measured apart. Of backward: the weight gradients (0 in all layers:
  // then taken as half of it). Of static_bytes: what ZeRO divides. Of activation_bytes and forward:
  // what selective recomputation drops and does again.
  double wgrad = 0;
  int64_t optimizer_bytes = 0, gradient_bytes = 0;
  int64_t selective_bytes = 0;
  double selective_seconds = 0;
  // What a rank with such a layer needs besides, however many it has: scratch, and room for one
  // weight gradient (the largest of a rank's layers counts). What a split backward keeps from the
  // input gradient to the weight gradients of one micro-batch.
  int64_t working_bytes = 0, gradient_scratch_bytes = 0, kept_bytes = 0;
  // The layer whose matrix this one works with (the embedding's: tied heads, MTP blocks; the
  // head's: MTP losses): a rank that has this one holds that one too. kNoOp = none.
  LayerId needs_layer = kNoOp;
};
// One phase of a (re)start, from the order to the first step done; how it grows with the size.
enum class PhaseScaling {
  kFixed,
  kPerGpu,   // with the number of GPUs (launch, connections)
  kPerByte,  // with the static bytes of the fullest rank (reading the checkpoint)
};
struct StartPhase {
  std::string name;
  double seconds = 0;  // at the measured layout
  PhaseScaling scaling = PhaseScaling::kFixed;
};
struct StepProfile {
  std::vector<LayerProfile> layers;  // one per layer id
  double transfer_seconds = 0;       // one activation hop between stages (of a node, see below)
  double reduce_seconds = 0;         // gradient reduction at the measured layout
  double optimizer_seconds = 0;      // norms and update at the measured layout
  double control_seconds = 0;        // agreements among all ranks, per step
  double step_seconds = 0;           // measured wall time of a step
  int steps = 0;                     // averaged over
  int pipeline_parallel = 1, data_parallel = 1, virtual_stages = 1;
  std::vector<StartPhase> start_phases;  // empty = not measured
  // Where ranks_per_node > 0, rank r is on node r / ranks_per_node, transfer_seconds is a hop
  // within a node and far_transfer_seconds one between nodes; of these one may be 0: none was seen.
  int ranks_per_node = 0;
  double far_transfer_seconds = 0;
  int64_t hop_bytes = 0;  // one activation hop; a slot holds two besides what layers keep
  // Time that each measured rank takes relative to the average one, for devices that are not alike;
  // empty = alike. The layers' times are those of an average device.
  std::vector<double> rank_slowness;
};
Json profile_to_json(const StepProfile& profile);
Result<StepProfile> profile_from_json(const Json& json);

// FlexTrain's model formula: T = [m·v + (p−1) + (v−1)·max(0, p−m)]·(t_F + t_B) with v = ⌈L/p⌉, t_F
// and t_B per layer, m micro-batches per pipeline (FlexTrain, MLSys 2026, model-based
// prediction). Seconds.
double model_step_seconds(int layers, int pipeline_parallel, int micro_batches, double forward,
                          double backward);

struct ScaleRequest {
  int num_transformer_layers = 1, num_mtp_heads = 0;
  int global_batch = 1, micro_batch_size = 1;
  int64_t tokens_per_step = 1;
  Numerics numerics = Numerics::kExact;
  std::string schedule = "1f1b";
  // What is tried besides for every layout; empty = `schedule`, the measured and 1 virtual stage,
  // and no recomputation. v-shape means two virtual stages.
  std::vector<std::string> schedules;
  std::vector<int> virtual_stages;
  std::vector<Recompute> recompute;
  int zero_stage = 0;  // 0 … 3, for memory: optimiser, gradients, weights divided by DP
  int min_gpus = 1;    // smaller counts get no entry (the measured one does)
  int max_gpus = 1;
  int min_data_parallel = 1, max_data_parallel = 1;  // equal = PP-only elasticity (--elastic=pp)
  bool no_ops = true;                                // false: as in PlacementRequest, for all Plans
  int64_t memory_limit_bytes = 0;                    // per rank, 0 = unlimited
  std::string device_type;
  double significant_gain = 0.05;   // rule 3: relative gain over the last kept entry
  double speedup_tolerance = 0.35;  // rule 2: relative difference of the two predicted speed-ups
  // The Plan that was profiled: tells the calibration where the layers were, and with which
  // schedule and recomputation the measured entry goes on (an explicit one counts as `schedule`).
  // Without it a regular Plan of the measured degrees with unit costs is assumed, which is what a
  // first run uses.
  std::optional<Plan> measured_plan;
};

// The profile re-sharded onto every feasible layout of min_gpus … max_gpus GPUs (DP divides the
// global batch, PP ≤ L), schedule, virtual stage count and recomputation; of a GPU count the one of
// best throughput that fits into memory, or, where none does, the one that needs least; both
// predictions; FlexTrain's filter in ascending GPU count: drop what does not fit; and when (1)
// model and profile move in opposite directions against their previous entries, (2) their speed-ups
// differ too much, (3) the gain over the last kept entry is not significant. The measured layout's
// own count is always kept with source kMeasured.
Result<ScaleTable> build_scale_table(const StepProfile& profile, const ScaleRequest& request);

// Why no table of this request has an entry for `gpus` GPUs (unless the measured layout has so
// many).
std::string why_no_layout(const ScaleRequest& request, int gpus);

Json scale_table_to_json(const ScaleTable& table);
Result<ScaleTable> scale_table_from_json(const Json& json);

}  // namespace flextrain::planner
