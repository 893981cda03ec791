// SPDX-License-Identifier: MIT
// Every kind of pipeline schedule behind one factory. Pure.
//
//   gpipe       all forwards, then all backwards
//   1f1b        one forward, one backward; interleaved with virtual stages
//   memory-min  one micro-batch in flight: peak = one micro-batch's forward
//   zb-1p       split backward, weight gradients fill the bubbles, memory of 1f1b
//   zb-2p       the same with twice 1f1b's memory: no bubble on any stage, but the stages end
//               staggered. A planner result only: to gain from it the optimiser must step before
//               the global gradient norm is known and roll back.
//   v-shape     two chunks per stage in a V, split backward, as little bubble as the memory cap
//               allows (controllable memory)
//   searched    planner/schedule_search.h
//
// (Huang 2019; Narayanan 2021; Qi 2023 and 2024.) Uneven stages, measured times and memory caps are
// accepted by all of them; the order of the actions follows the costs where the family leaves a
// choice. Lists are free of deadlock by construction (planner/order_run.h) and checked.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "planner/schedule.h"

namespace flextrain::planner {

enum class ScheduleFamily { kGpipe, k1F1B, kMemoryMin, kZb1p, kZb2p, kVShape, kSearched };
inline constexpr ScheduleFamily kAllFamilies[] = {
    ScheduleFamily::kGpipe,   ScheduleFamily::k1F1B, ScheduleFamily::kMemoryMin,
    ScheduleFamily::kZb1p,    ScheduleFamily::kZb2p, ScheduleFamily::kVShape,
    ScheduleFamily::kSearched};
std::string_view family_name(ScheduleFamily family);  // "gpipe", "1f1b", …
Result<ScheduleFamily> parse_family(std::string_view name);
// Whether its lists split the backward. (searched: as its best found one does.)
bool splits_backward(ScheduleFamily family);

// One micro-batch of one chunk. Times in seconds, memory in bytes (or any one unit).
struct ChunkCosts {
  double forward = 1, backward = 1, wgrad = 1;  // backward = input gradient alone
  double recompute = 0;   // > 0: each Backward is preceded by a Recompute of that long
  double transfer = 0;    // to the next chunk in the order of execution, one way
  double activation = 1;  // kept from Forward to Backward
  double wgrad_kept = 1;  // of that (and of recomputed), kept from Backward to Wgrad when split
  double recomputed = 0;  // held besides, from Recompute on
  bool operator==(const ChunkCosts&) const = default;
};

struct PipelineCosts {
  ScheduleShape shape;
  std::vector<std::vector<ChunkCosts>> chunks;  // [stage][chunk]
  std::vector<double> memory_cap;               // per stage, above its static memory; empty = none
};
PipelineCosts uniform_costs(const ScheduleShape& shape, const ChunkCosts& costs);
// kInvalidArgument names the first table of a wrong size, forward or backward time that is not
// positive, other value that is negative, or value that is not finite.
Status check_pipeline_costs(const PipelineCosts& costs);
// What check_schedule takes. Unsplit, Backward lasts backward + wgrad.
ActionCosts action_costs(const PipelineCosts& costs, bool split_backward);

struct MadeSchedule {
  Schedule actions;
  ScheduleFamily family = ScheduleFamily::k1F1B;
  ScheduleShape shape;
  bool split_backward = false;
  ScheduleReport report;   // under the costs it was made for
  double lower_bound = 0;  // no schedule of this shape that keeps the caps is shorter
};

// kInvalidArgument: bad costs, a family that does not fit the shape (v-shape needs order kV and two
// chunks, memory-min … any). kResourceExhausted: no schedule of the family keeps the caps; it names
// the stage, what it needs at least and its cap.
Result<MadeSchedule> make_schedule(ScheduleFamily family, const PipelineCosts& costs);
// The lists alone, not checked.
Result<Schedule> make_actions(ScheduleFamily family, const PipelineCosts& costs);

// A Plan's `schedule` field: the families whose lists follow from the Plan alone. kInvalidArgument
// for another name; "explicit" is not asked here.
Result<ScheduleFamily> parse_plan_schedule(std::string_view name);

// Seconds that every schedule that keeps the caps takes at least: over the stages, the way in, all
// its work and the way out of the last micro-batch; and the waits that a cap forces.
double makespan_lower_bound(const PipelineCosts& costs);

}  // namespace flextrain::planner
