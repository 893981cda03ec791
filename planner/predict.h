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

// A stage's layers and those whose matrices they work with, ascending.
std::vector<LayerId> held_layers(const StepProfile& profile, const Stage& stage);

// What a rank of the measured layout holds, to scale the measured reduction and optimiser times by.
struct MeasuredLayout {
  int data_parallel = 1;
  int64_t fullest_static_bytes = 0;
  bool reduces_far = false;  // its gradients cross nodes
};
MeasuredLayout measured_layout(const StepProfile& profile, const Plan& plan);

// The costs of a pipeline's chunks as the placed layers add up to, with recomputation. Work that is
// not split apart in the profile counts half as weight gradient. Memory in bytes. `copies` as
// below: a stage is as slow, a hop as far, as that of any of them.
PipelineCosts pipeline_costs(const StepProfile& profile, const Plan& plan, int pipeline,
                             int copies = 1);

class NamedSchedules;

struct PredictOptions {
  // The Plan and so many - 1 others like it on the ranks that follow: its DP degree is so many
  // times the Plan's.
  int copies = 1;
  int zero_stage = 0;
  NamedSchedules* schedules = nullptr;  // keeps what is made, for the next ones
};

// Runs each pipeline's schedule with the chunk times that the placed layers add up to:
//   step = latest end + agreements + max over stages (reduction) + max over stages (optimiser): all
//     ranks agree that no gradient has overflown before the first is reduced;
//   memory of a rank = static bytes of its layers (ZeRO: the divided parts over the DP degree),
//   their
//     scratch, and slots: as many as the schedule has in use at once, each with room for the
//     largest of the rank's chunks. A profile without hop_bytes: the checker's peak of the
//     activations instead. No-Ops cost nothing.
Result<Prediction> predict(const StepProfile& profile, const MeasuredLayout& measured,
                           const Plan& plan, const PredictOptions& options = {});

// What the fullest rank of a one-pipeline Plan holds at least, without making the schedule: no
// schedule of the Plan's shape, or none that its name stands for, holds less.
int64_t least_memory_bytes(const StepProfile& profile, const Plan& plan,
                           const PredictOptions& options = {});

// What predict() says of the memory of a one-pipeline Plan, without running the schedule.
Result<int64_t> peak_memory_bytes(const StepProfile& profile, const Plan& plan,
                                  const PredictOptions& options = {});

// The least that can come after the last stage's end in a layout of these degrees: as predict()
// has it for a stage of average size.
double least_tail_seconds(const StepProfile& profile, const MeasuredLayout& measured,
                          int pipeline_parallel, int data_parallel);

// T_overhead of a start at `gpus` GPUs whose fullest rank holds `static_bytes`; 0 when the phases
// were not measured.
double overhead_seconds(const StepProfile& profile, const MeasuredLayout& measured, int gpus,
                        int64_t static_bytes);

// FlexTrain's filter over entries in ascending GPU count, after the memory limit's: sets fits, kept
// and drop_rule. Measured entries and the one of `measured_gpus` stay.
void filter_entries(std::vector<ScaleEntry>& entries, int measured_gpus,
                    const ScaleRequest& request);
// What a reader of the table must know, "" for nothing: that no larger size is kept, and why.
std::string table_note(const std::vector<ScaleEntry>& entries, int measured_gpus);

}  // namespace flextrain::planner
