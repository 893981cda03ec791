// SPDX-License-Identifier: MIT
#include "planner/predict.h"

#include <algorithm>
#include <cmath>

#include "planner/named_schedules.h"
#include "planner/places.h"
#include "planner/schedule.h"
#include "planner/v_schedule.h"

namespace flextrain::planner {
std::vector<LayerId> held_layers(const StepProfile& profile, const Stage& stage) {
  std::vector<LayerId> held;
  for (const auto& chunk : stage.chunks) {
    for (const LayerId layer : chunk) {
      if (layer == kNoOp) continue;
      held.push_back(layer);
      const LayerId needed = profile.layers[layer].needs_layer;
      if (needed != kNoOp) held.push_back(needed);
    }
  }
  std::sort(held.begin(), held.end());
  held.erase(std::unique(held.begin(), held.end()), held.end());
  return held;
}

namespace {

// Static bytes of a stage and, of those, what ZeRO divides by the DP degree (Rajbhandari et al.
// 2020): stage 1 the optimiser's, 2 the gradients too, 3 all.
struct StaticBytes {
  int64_t all = 0, divided = 0, gradients = 0;
  int64_t of_rank(int data_parallel) const { return all - divided + divided / data_parallel; }
};
StaticBytes stage_static_bytes(const StepProfile& profile, const Stage& stage, int zero_stage) {
  StaticBytes bytes;
  for (const LayerId layer : held_layers(profile, stage)) {
    const LayerProfile& measured = profile.layers[layer];
    bytes.all += measured.static_bytes;
    bytes.gradients += measured.gradient_bytes;
    if (zero_stage == 1) bytes.divided += measured.optimizer_bytes;
    if (zero_stage == 2) bytes.divided += measured.optimizer_bytes + measured.gradient_bytes;
    if (zero_stage >= 3) bytes.divided += measured.static_bytes;
  }
  const auto ranks = static_cast<int64_t>(stage.ranks.size());
  return {bytes.all / ranks, bytes.divided / ranks, bytes.gradients / ranks};
}

// A ring all-reduce moves 2(d−1)/d of the data over each link (Patarasuk and Yuan, 2009).
double ring_volume(int data_parallel) { return 2.0 * (data_parallel - 1) / data_parallel; }

// Seconds per byte that a hop takes within or between nodes; 0 = unknown.
double hop_byte_seconds(const StepProfile& profile, bool far) {
  if (profile.hop_bytes <= 0) return 0;
  return (far ? profile.far_transfer_seconds : profile.transfer_seconds) /
         static_cast<double>(profile.hop_bytes);
}

// Gradient reduction of a stage whose static memory is `share` of the measured fullest one's,
// `gradient_bytes` of it gradients.
double reduce_seconds(const StepProfile& profile, const MeasuredLayout& measured, int data_parallel,
                      double share, double gradient_bytes, bool far) {
  if (data_parallel < 2) return profile.data_parallel > 1 ? 0 : profile.reduce_seconds * share;
  const double pace = hop_byte_seconds(profile, far);
  if (measured.data_parallel > 1) {
    const double there = hop_byte_seconds(profile, measured.reduces_far);
    const double other_links =
        far != measured.reduces_far && pace > 0 && there > 0 ? pace / there : 1;
    return profile.reduce_seconds * share * other_links * ring_volume(data_parallel) /
           ring_volume(measured.data_parallel);
  }
  // Measured at DP 1 there is no reduction to scale. Hops tell how fast the links are; without them
  // a ring is taken to cost an optimiser pass per unit of volume (both stream the same gradients
  // through memory), to be replaced by a measurement as soon as there is one.
  if (pace > 0 && gradient_bytes > 0) {
    return profile.reduce_seconds * share + pace * gradient_bytes * ring_volume(data_parallel);
  }
  return (profile.reduce_seconds + profile.optimizer_seconds * ring_volume(data_parallel)) * share;
}

// Agreements grow with the depth of a tree over the ranks.
double control_seconds(const StepProfile& profile, int ranks) {
  const int measured = profile.pipeline_parallel * profile.data_parallel;
  if (profile.control_seconds <= 0 || ranks == measured) return profile.control_seconds;
  const double depth = std::max(1.0, std::log2(measured));
  return profile.control_seconds * std::log2(std::max(ranks, 1)) / depth;
}

// What of a rank's memory is neither its layers' own nor activations.
int64_t scratch_bytes(const StepProfile& profile, const Plan& plan, const Stage& stage) {
  int64_t block = 0, ends = 0, gradient = 0, again = 0;
  for (const auto& chunk : stage.chunks) {
    for (const LayerId layer : chunk) {
      if (layer == kNoOp) continue;
      const LayerProfile& measured = profile.layers[layer];
      gradient = std::max(gradient, measured.gradient_scratch_bytes);
      int64_t& kind = is_block(plan, layer) ? block : ends;
      kind = std::max(kind, measured.working_bytes);
      // One layer's recomputed tensors have a place of their own.
      if (plan.recompute[layer] == Recompute::kSelective) {
        again = std::max(again, measured.selective_bytes);
      } else if (plan.recompute[layer] == Recompute::kFull && profile.hop_bytes > 0) {
        again = std::max(again, measured.activation_bytes - profile.hop_bytes);
      }
    }
  }
  return profile.hop_bytes > 0 ? block + ends + gradient + again : block + ends + gradient;
}

// Slots and workspaces: every one has room for the largest of the stage's chunks.
double activation_bytes(const StepProfile& profile, const Stage& stage,
                        const std::vector<ChunkCosts>& costs, int slots, int workspaces,
                        bool split) {
  double slot = 0, workspace = 0;
  for (size_t c = 0; c < costs.size(); ++c) {
    double kept = 0;
    for (const LayerId layer : stage.chunks[c]) {
      if (layer != kNoOp && split) kept += static_cast<double>(profile.layers[layer].kept_bytes);
    }
    slot = std::max(slot, costs[c].activation);
    workspace = std::max(workspace, costs[c].recomputed + kept);
  }
  return slots * (slot + 2.0 * static_cast<double>(profile.hop_bytes)) + workspaces * workspace;
}

bool same_pipeline(const Pipeline& a, const Pipeline& b) {
  return a.micro_batches == b.micro_batches &&
         std::equal(a.stages.begin(), a.stages.end(), b.stages.begin(), b.stages.end(),
                    [](const Stage& x, const Stage& y) {
                      return x.chunks == y.chunks && x.ranks.size() == y.ranks.size();
                    });
}

}  // namespace

MeasuredLayout measured_layout(const StepProfile& profile, const Plan& plan) {
  MeasuredLayout layout;
  layout.data_parallel = static_cast<int>(plan.pipelines.size());
  layout.reduces_far = Places(profile, plan, 1).reduces_far(plan);
  for (const Pipeline& pipeline : plan.pipelines) {
    for (const Stage& stage : pipeline.stages) {
      layout.fullest_static_bytes =
          std::max(layout.fullest_static_bytes, stage_static_bytes(profile, stage, 0).all);
    }
  }
  return layout;
}

PipelineCosts pipeline_costs(const StepProfile& profile, const Plan& plan, int index, int copies) {
  const Places places(profile, plan, copies);
  const bool split_measured = std::any_of(profile.layers.begin(), profile.layers.end(),
                                          [](const LayerProfile& l) { return l.wgrad > 0; });
  const Pipeline& pipeline = plan.pipelines[index];
  PipelineCosts costs;
  costs.shape = {static_cast<int>(pipeline.stages.size()),
                 static_cast<int>(pipeline.stages.front().chunks.size()), pipeline.micro_batches,
                 plan.chunk_order};
  for (int s = 0; s < costs.shape.stages; ++s) {
    const Stage& stage = pipeline.stages[s];
    auto& row = costs.chunks.emplace_back();
    const double share = places.slowness(stage.leader) / static_cast<double>(stage.ranks.size());
    for (int c = 0; c < costs.shape.virtual_stages; ++c) {
      const int next = costs.shape.next_stage(s, c);
      const double hop = next < 0 ? 0 : places.hop(stage.leader, pipeline.stages[next].leader);
      ChunkCosts sum{0, 0, 0, 0, hop, 0, 0, 0};
      for (const LayerId layer : stage.chunks[c]) {
        if (layer == kNoOp) continue;
        const LayerProfile& measured = profile.layers[layer];
        const double wgrad = split_measured ? measured.wgrad : measured.backward / 2;
        sum.forward += measured.forward * share;
        sum.backward += (measured.backward - wgrad) * share;
        sum.wgrad += wgrad * share;
        const auto bytes = static_cast<double>(measured.activation_bytes);
        switch (plan.recompute[layer]) {
          case Recompute::kNone:
            sum.activation += bytes;
            break;
          case Recompute::kSelective:
            sum.activation += bytes - static_cast<double>(measured.selective_bytes);
            sum.recomputed += static_cast<double>(measured.selective_bytes);
            sum.recompute += measured.selective_seconds * share;
            break;
          case Recompute::kFull: {
            // The layers' outputs stay: they are the next ones' inputs.
            const double output = std::min(bytes, static_cast<double>(profile.hop_bytes));
            sum.activation += output;
            sum.recomputed += bytes - output;
            // All but the down projection, which is half of what selective recomputation does.
            sum.recompute += (measured.forward - measured.selective_seconds / 2) * share;
            break;
          }
        }
      }
      // What a weight gradient needs is what its layer saved.
      sum.wgrad_kept = sum.activation + sum.recomputed;
      row.push_back(sum);
    }
  }
  return costs;
}

Result<Prediction> predict(const StepProfile& profile, const MeasuredLayout& measured,
                           const Plan& plan, const PredictOptions& options) {
  RETURN_IF_ERROR(check_profile(profile, plan.num_transformer_layers, plan.num_mtp_heads));
  const int data_parallel = static_cast<int>(plan.pipelines.size()) * options.copies;
  const Places places(profile, plan, options.copies);
  const bool far = places.reduces_far(plan);
  Prediction prediction;
  double pipelines_end = 0, reduction = 0, optimizer = 0;
  std::vector<std::vector<ChunkCosts>> previous;
  for (size_t index = 0; index < plan.pipelines.size(); ++index) {
    const Pipeline& pipeline = plan.pipelines[index];
    // Regular Plans repeat one pipeline; the same one ends at the same time.
    const PipelineCosts costs =
        pipeline_costs(profile, plan, static_cast<int>(index), options.copies);
    if (index > 0 && plan.schedule != "explicit" &&
        same_pipeline(pipeline, plan.pipelines[index - 1]) && costs.chunks == previous) {
      continue;
    }
    NamedSchedules mine;
    NamedSchedules& schedules = options.schedules != nullptr ? *options.schedules : mine;
    ASSIGN_OR_RETURN(const std::shared_ptr<const NamedSchedule> schedule,
                     schedules.of(plan, static_cast<int>(index)));
    previous = costs.chunks;
    const bool split = schedule->split_backward;
    ASSIGN_OR_RETURN(const ScheduleReport report,
                     check_schedule(schedule->actions, costs.shape, action_costs(costs, split)));
    for (size_t s = 0; s < pipeline.stages.size(); ++s) {
      const StaticBytes bytes = stage_static_bytes(profile, pipeline.stages[s], options.zero_stage);
      const double share =
          measured.fullest_static_bytes > 0
              ? static_cast<double>(bytes.all) / static_cast<double>(measured.fullest_static_bytes)
              : 1.0;
      const double end = report.timeline[s].empty() ? 0 : report.timeline[s].back().end;
      pipelines_end = std::max(pipelines_end, end);
      reduction = std::max(reduction, reduce_seconds(profile, measured, data_parallel, share,
                                                     static_cast<double>(bytes.gradients), far));
      optimizer = std::max(optimizer, profile.optimizer_seconds * share);
      const int64_t fixed = bytes.of_rank(data_parallel);
      double moving = report.peak_memory[s];
      if (profile.hop_bytes > 0) {
        moving = activation_bytes(profile, pipeline.stages[s], costs.chunks[s],
                                  report.peak_slots[s], schedule->workspaces[s], split);
      }
      const int64_t peak = fixed + scratch_bytes(profile, plan, pipeline.stages[s]) +
                           static_cast<int64_t>(std::llround(moving));
      prediction.fullest_static_bytes = std::max(prediction.fullest_static_bytes, fixed);
      prediction.peak_memory_bytes = std::max(prediction.peak_memory_bytes, peak);
    }
  }
  // The gradient norm needs every stage's reduced gradients before the first optimiser update.
  prediction.step_seconds = pipelines_end + reduction + optimizer +
                            control_seconds(profile, num_ranks(plan) * options.copies);
  return prediction;
}

namespace {

// Slots that every run of a named schedule has in use at once on a stage, from how its lists are
// made (planner/fixed_orders.cc, schedule_family.cc); whatever else, one micro-batch of every
// chunk: before the Backward of its last chunk none of its others is done.
int least_slots(const Plan& plan, const ScheduleShape& shape, int stage) {
  const int64_t all = int64_t{shape.virtual_stages} * shape.micro_batches;
  const int later = shape.stages - 1 - stage;
  int64_t held = shape.virtual_stages;
  if (plan.schedule == "gpipe") held = all;
  // The Forwards before the first Backward. With equal times, as named schedules are made for, a
  // Forward reaches zb-1p's stage in each of them, and the first Backward after twice `later`.
  if (shape.virtual_stages == 1 && (plan.schedule == "1f1b" || plan.schedule == "zb-1p")) {
    held = later + 1;
  } else if (plan.schedule == "1f1b") {
    held = 2 * int64_t{later} + int64_t{shape.virtual_stages - 1} * shape.stages + 1;
  } else if (plan.schedule == "zb-1p" && stage == 0) {
    // The first stage has a Forward of its first chunk to do all the time until the first Backward
    // comes, (v + 1) p - 1 Forwards later, as long as there is room for one of each other chunk.
    const int64_t room =
        2 * int64_t{shape.stages - 1} + int64_t{shape.virtual_stages - 1} * (shape.stages - 1) + 1;
    held = std::max(held, std::min<int64_t>(room, shape.micro_batches));
  } else if (plan.schedule == "v-shape" && stage == 0) {
    // Likewise, 2 p Forwards later, which is that of the last chunk; it has that many credits.
    held = int64_t{std::min(least_credits_down(shape.stages), shape.micro_batches)} + 1;
  }
  return static_cast<int>(std::min(held, all));
}

// With so many slots and workspaces per stage.
template <typename Slots, typename Workspaces>
int64_t memory_with(const StepProfile& profile, const Plan& plan, const PipelineCosts& costs,
                    const PredictOptions& options, bool split, Slots&& slots,
                    Workspaces&& workspaces) {
  const std::vector<Stage>& stages = plan.pipelines.front().stages;
  const int data_parallel = static_cast<int>(plan.pipelines.size()) * options.copies;
  int64_t most = 0;
  for (size_t s = 0; s < stages.size(); ++s) {
    double moving = 0;
    if (profile.hop_bytes > 0) {
      moving =
          activation_bytes(profile, stages[s], costs.chunks[s], slots(s), workspaces(s), split);
    } else {
      // One micro-batch of each chunk; with a single chunk so many. The last one goes back first.
      for (const ChunkCosts& chunk : costs.chunks[s]) moving += chunk.activation;
      if (costs.chunks[s].size() == 1) moving *= slots(s);
      moving += costs.chunks[s].back().recomputed;
    }
    const int64_t fixed =
        stage_static_bytes(profile, stages[s], options.zero_stage).of_rank(data_parallel);
    most = std::max(most, fixed + scratch_bytes(profile, plan, stages[s]) +
                              static_cast<int64_t>(std::llround(moving)));
  }
  return most;
}

}  // namespace

int64_t least_memory_bytes(const StepProfile& profile, const Plan& plan,
                           const PredictOptions& options) {
  const PipelineCosts costs = pipeline_costs(profile, plan, 0, options.copies);
  const auto family = parse_plan_schedule(plan.schedule);
  const bool split = family.ok() && splits_backward(*family);
  return memory_with(
      profile, plan, costs, options, split,
      [&](size_t s) { return least_slots(plan, costs.shape, static_cast<int>(s)); },
      [](size_t) { return 1; });
}

Result<int64_t> peak_memory_bytes(const StepProfile& profile, const Plan& plan,
                                  const PredictOptions& options) {
  if (profile.hop_bytes == 0) {  // then it is the checker's peak of each stage's activations
    ASSIGN_OR_RETURN(const Prediction prediction, predict(profile, {}, plan, options));
    return prediction.peak_memory_bytes;
  }
  NamedSchedules mine;
  ASSIGN_OR_RETURN(const auto schedule,
                   (options.schedules != nullptr ? *options.schedules : mine).of(plan, 0));
  return memory_with(
      profile, plan, pipeline_costs(profile, plan, 0, options.copies), options,
      schedule->split_backward, [&](size_t s) { return schedule->slots[s]; },
      [&](size_t s) { return schedule->workspaces[s]; });
}

double least_tail_seconds(const StepProfile& profile, const MeasuredLayout& measured,
                          int pipeline_parallel, int data_parallel) {
  double bytes = 0, gradients = 0;
  for (const LayerProfile& layer : profile.layers) {
    bytes += static_cast<double>(layer.static_bytes);
    gradients += static_cast<double>(layer.gradient_bytes);
  }
  const double share =
      measured.fullest_static_bytes > 0
          ? bytes / pipeline_parallel / static_cast<double>(measured.fullest_static_bytes)
          : 0;
  const auto reduction = [&](bool far) {
    return reduce_seconds(profile, measured, data_parallel, share, gradients / pipeline_parallel,
                          far);
  };
  return std::min(reduction(false), reduction(true)) + profile.optimizer_seconds * share;
}

double overhead_seconds(const StepProfile& profile, const MeasuredLayout& measured, int gpus,
                        int64_t static_bytes) {
  const double measured_gpus = profile.pipeline_parallel * profile.data_parallel;
  double seconds = 0;
  for (const StartPhase& phase : profile.start_phases) {
    double factor = 1;
    if (phase.scaling == PhaseScaling::kPerGpu) factor = gpus / measured_gpus;
    if (phase.scaling == PhaseScaling::kPerByte && measured.fullest_static_bytes > 0) {
      factor =
          static_cast<double>(static_bytes) / static_cast<double>(measured.fullest_static_bytes);
    }
    seconds += phase.seconds * factor;
  }
  return seconds;
}

}  // namespace flextrain::planner
