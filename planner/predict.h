// SPDX-License-Identifier: MIT
// Profile-based prediction: a profile re-sharded onto another Plan. Internal to planner/; pure.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "planner/plan.h"
#include "planner/scale_table.h"
#include "planner/schedule_family.h"

namespace flextrain::planner {

struct Prediction {
  double step_seconds = 0;
  int64_t peak_memory_bytes = 0;     // of the fullest rank
  int64_t fullest_static_bytes = 0;  // of that, what does not come and go
};

// The profile has one entry per layer id with finite times >= 0, some work, parts no larger than
// the whole, and degrees >= 1.
Status check_profile(const StepProfile& profile, int num_transformer_layers, int num_mtp_heads = 0);

// What a rank of the measured layout holds, to scale the measured reduction and optimiser times by.
struct MeasuredLayout {
  int data_parallel = 1;
  int64_t fullest_static_bytes = 0;
};
MeasuredLayout measured_layout(const StepProfile& profile, const Plan& plan);

// The costs of a pipeline's chunks as the placed layers add up to, with recomputation. Work that is
// not split apart in the profile counts half as weight gradient. Memory in bytes.
PipelineCosts pipeline_costs(const StepProfile& profile, const Plan& plan, int pipeline);

struct PredictOptions {
  // Pipelines besides the Plan's own that do the same: its DP degree is so many times the Plan's.
  int copies = 1;
  int zero_stage = 0;
};

// Runs each pipeline's schedule with the chunk times that the placed layers add up to:
//   step = max over stages (latest end + reduction) + max over stages (optimiser),
//   memory of a rank = static bytes of its layers (ZeRO: the divided parts over the DP degree) +
//     the checker's peak of the activations. No-Ops cost nothing.
Result<Prediction> predict(const StepProfile& profile, const MeasuredLayout& measured,
                           const Plan& plan, const PredictOptions& options = {});

// T_overhead of a start at `gpus` GPUs whose fullest rank holds `static_bytes`; 0 when the phases
// were not measured.
double overhead_seconds(const StepProfile& profile, const MeasuredLayout& measured, int gpus,
                        int64_t static_bytes);

// FlexTrain's filter over entries in ascending GPU count: sets kept and drop_rule. Measured entries
// and the one of `measured_gpus` stay.
void filter_entries(std::vector<ScaleEntry>& entries, int measured_gpus,
                    const ScaleRequest& request);
// What a reader of the table must know, "" for nothing: that no larger size is kept, and why.
std::string table_note(const std::vector<ScaleEntry>& entries, int measured_gpus);

}  // namespace flextrain::planner
