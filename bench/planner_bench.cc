// SPDX-License-Identifier: MIT
// Prints what the planner reaches and how fast: the golden table of pipeline schedules, the
// bubble-versus-memory front of V-shaped ones, the searches on uneven stages, and the scale table
// of a 61-layer model. Times are CPU seconds of this process.
#include <fmt/core.h>

#include <ctime>
#include <map>

#include "planner/scale_table.h"
#include "planner/schedule_search.h"
#include "planner/v_schedule.h"

namespace flextrain::planner {
namespace {

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

PipelineCosts unit_costs(int stages, int virtual_stages, int micro_batches) {
  const double time = 1000.0 / virtual_stages;
  return uniform_costs({stages, virtual_stages, micro_batches},
                       {.forward = time, .backward = time, .wgrad = time, .wgrad_kept = 0.5});
}

// "103000 (4.1 ms)", the published figure beside it.
std::string cell(ScheduleFamily family, const PipelineCosts& costs, bool span, double published) {
  const double begun = cpu_seconds();
  const auto made = make_schedule(family, costs);
  const double seconds = cpu_seconds() - begun;
  if (!made.ok()) return made.status().message();
  const double reached = span ? made->report.longest_span : made->report.makespan;
  return fmt::format("{:.0f} of {:.0f}, {:.2f} ms", reached, published, 1e3 * seconds);
}

void golden_table() {
  fmt::print(
      "F = B = W = 1000, no transfer time: reached of published, CPU time (the published "
      "generator: "
      "under 210 ms each)\n");
  fmt::print("{:>7}  {:<28} {:<28} {:<28} {:<28}\n", "p, m", "1f1b", "interleaved, 2 chunks",
             "zb-1p", "zb-2p (longest span)");
  struct Row {
    int stages, micro_batches;
    double plain, interleaved, zb1p, zb2p;
  };
  for (const Row& row :
       {Row{4, 8, 33000, 28500, 27000, 24000}, Row{8, 32, 117000, 106500, 103000, 96000},
        Row{16, 64, 237000, 214500, 207000, 192000}}) {
    const PipelineCosts plain = unit_costs(row.stages, 1, row.micro_batches);
    const PipelineCosts two = unit_costs(row.stages, 2, row.micro_batches);
    fmt::print("{:>7}  {:<28} {:<28} {:<28} {:<28}\n",
               fmt::format("{}, {}", row.stages, row.micro_batches),
               cell(ScheduleFamily::k1F1B, plain, false, row.plain),
               cell(ScheduleFamily::k1F1B, two, false, row.interleaved),
               cell(ScheduleFamily::kZb1p, plain, false, row.zb1p),
               cell(ScheduleFamily::kZb2p, plain, true, row.zb2p));
  }
}

void front() {
  fmt::print(
      "\nV-shape: bubble slots of half a chunk by peak memory in half chunks (a Backward "
      "frees half)\n");
  const struct {
    int stages;
    std::vector<int> published;
  } fronts[] = {{4, {11, 8, 5, 3, 0}}, {8, {23, 20, 17, 14, 11, 8, 5, 3, 0}}};
  for (const auto& [stages, published] : fronts) {
    for (size_t i = 0; i < published.size(); ++i) {
      PipelineCosts costs =
          uniform_costs({stages, 2, 2 * stages, ChunkOrder::kV}, {.wgrad_kept = 0.5});
      costs.memory_cap.assign(stages, stages + static_cast<double>(i));
      const double begun = cpu_seconds();
      const auto schedule = make_v_shape(costs, VObjective::kLongestSpan);
      const double seconds = cpu_seconds() - begun;
      if (!schedule.ok()) {
        fmt::print("  {}\n", schedule.status().message());
        continue;
      }
      const auto report = check_schedule(*schedule, costs.shape, action_costs(costs, true));
      fmt::print("  p {} peak {:>2}: {:>2.0f} of {:>2}, {:.1f} ms\n", stages, stages + i,
                 report.ok() ? report->longest_span - 12 * stages : -1.0, published[i],
                 1e3 * seconds);
    }
  }
}

// One stage works half as much again, transfers take a twentieth, memory as 1F1B's or half of it.
void searches() {
  fmt::print(
      "\nsearch, stages of 1 and one of 1.5 times the work, transfers of 0.05, cap in "
      "activations\n");
  const struct {
    int stages, micro_batches;
    double cap;
  } cases[] = {{2, 4, 2}, {3, 5, 3}, {4, 8, 4}, {4, 8, 2}, {8, 16, 8}, {8, 16, 4}};
  for (const auto& [stages, micro_batches, cap] : cases) {
    PipelineCosts costs =
        uniform_costs({stages, 1, micro_batches}, {.transfer = 0.05, .wgrad_kept = 0.5});
    for (double* time :
         {&costs.chunks[1][0].forward, &costs.chunks[1][0].backward, &costs.chunks[1][0].wgrad}) {
      *time *= 1.5;
    }
    costs.memory_cap.assign(stages, cap);
    for (const SearchMethod method : {SearchMethod::kDepthFirst, SearchMethod::kBestFirst}) {
      SearchOptions options;
      options.method = method;
      options.max_expansions = method == SearchMethod::kDepthFirst ? 100000 : 1000;
      const double begun = cpu_seconds();
      const auto found = search_schedule(costs, options);
      const double seconds = cpu_seconds() - begun;
      fmt::print("  p {} m {} cap {} {}: {}, {:.0f} ms\n", stages, micro_batches, cap,
                 method == SearchMethod::kDepthFirst ? "depth-first" : "best-first ",
                 found.ok() ? fmt::format("from {:g} to {}", found->progress.front().makespan,
                                          search_summary(*found))
                            : found.status().message(),
                 1e3 * seconds);
    }
  }
}

void scale_table() {
  constexpr int kLayers = 61;
  StepProfile profile;
  profile.layers.resize(kLayers + 2);
  for (LayerProfile& layer : profile.layers) {
    layer.forward = 0.004;
    layer.backward = 0.008;
    layer.static_bytes = int64_t{8} << 30;
    layer.activation_bytes = int64_t{1} << 28;
    layer.selective_bytes = int64_t{1} << 26;
    layer.selective_seconds = 0.001;
  }
  profile.hop_bytes = int64_t{1} << 23;
  profile.transfer_seconds = 0.0002;
  profile.optimizer_seconds = 0.05;
  profile.pipeline_parallel = 8;
  profile.data_parallel = 4;
  ScaleRequest request;
  request.num_transformer_layers = kLayers;
  request.global_batch = 256;
  request.tokens_per_step = int64_t{256} * 4096;
  request.min_gpus = 32;
  request.max_gpus = 128;
  request.max_data_parallel = 256;
  request.schedules = {"1f1b", "zb-1p", "v-shape", "gpipe", "memory-min"};
  request.virtual_stages = {1, 2, 4};
  request.recompute = {Recompute::kNone, Recompute::kSelective, Recompute::kFull};
  fmt::print(
      "\nscale table, 61 layers, 32 to 128 GPUs, all schedules, 1, 2 or 4 virtual stages, all "
      "recomputations\n");
  // Without a limit; one that makes layouts compute again; one that the smaller counts exceed.
  for (const int64_t gib : {0, 80, 40}) {
    request.memory_limit_bytes = gib << 30;
    const double begun = cpu_seconds();
    const auto table = build_scale_table(profile, request);
    const double seconds = cpu_seconds() - begun;
    if (!table.ok()) {
      fmt::print("  {}\n", table.status().message());
      continue;
    }
    int kept = 0, unfit = 0;
    std::map<std::string, int> ways;
    for (const ScaleEntry& entry : table->entries) {
      kept += entry.kept;
      unfit += !entry.fits;
      const Recompute again = entry.plan.recompute[1];
      ++ways[again == Recompute::kNone
                 ? entry.plan.schedule
                 : fmt::format("{}, {}", entry.plan.schedule, recompute_name(again))];
    }
    fmt::print("  {}: {} entries, {} kept, {} do not fit, {:.2f} s;",
               gib == 0 ? "no memory limit" : fmt::format("{} GiB", gib), table->entries.size(),
               kept, unfit, seconds);
    for (const auto& [way, count] : ways) fmt::print(" {} x {}", count, way);
    fmt::print("\n");
  }
}

}  // namespace
}  // namespace flextrain::planner

int main() {
  flextrain::planner::golden_table();
  flextrain::planner::front();
  flextrain::planner::searches();
  flextrain::planner::scale_table();
  return 0;
}
