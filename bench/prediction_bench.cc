// SPDX-License-Identifier: MIT
// How well the planner foretells: step time and memory of layouts on emulated clusters, from a
// profile of three steps of another layout. Prints the tables of docs/prediction.md. Give the
// folder of the cluster files (etc/devices).
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ctime>

#include "tests/trainer/emulation/rehearsed_job.h"
#include "trainer/emulation/rehearsal.h"

namespace flextrain::trainer {
namespace {

using Layout = RehearsedLayout;

struct Errors {
  double worst_time = 0, worst_memory = 0, sum_time = 0;
  int cases = 0;
};

// Profiles `base` and predicts every other layout.
bool table(const std::string& folder, const char* name, int layers, int global_batch,
           const Layout& base, const std::vector<Layout>& layouts, Errors& all) {
  const Result<ClusterProfile> cluster = read_cluster_profile(folder + "/" + name + ".toml");
  if (!cluster.ok()) {
    fmt::print(stderr, "{}\n", cluster.status().message());
    return false;
  }
  const TrainConfig config = rehearsed_job(layers, global_batch, 4096);
  const planner::Plan base_plan = rehearsed_plan(config, base);
  const Result<RehearsalResult> profiled = rehearse(config, base_plan, *cluster, {1, 3});
  if (!profiled.ok()) {
    fmt::print(stderr, "{}: {}\n", name, profiled.status().message());
    return false;
  }
  fmt::print("\n{}, {} layers, {} sequences, profile of {}\n", name, layers, global_batch,
             planner::plan_summary(base_plan));
  fmt::print(
      "| layout | predicted s | rehearsed s | error % | memory GB | rehearsed GB | error % |\n");
  fmt::print("|---|---|---|---|---|---|---|\n");
  for (const Layout& layout : layouts) {
    const planner::Plan plan = rehearsed_plan(config, layout);
    const Result<PredictionCheck> check =
        check_prediction(config, *cluster, *profiled, base_plan, plan);
    if (!check.ok()) {
      fmt::print("| {} | {} |\n", planner::plan_summary(plan), check.status().message());
      continue;
    }
    fmt::print("| {} | {:.4f} | {:.4f} | {:+.2f} | {:.2f} | {:.2f} | {:+.2f} |\n",
               planner::plan_summary(plan), check->predicted_seconds, check->rehearsed_seconds,
               100 * check->time_error(), static_cast<double>(check->predicted_bytes) / 1e9,
               static_cast<double>(check->rehearsed_bytes) / 1e9, 100 * check->memory_error());
    std::fflush(stdout);
    all.worst_time = std::max(all.worst_time, std::abs(check->time_error()));
    all.worst_memory = std::max(all.worst_memory, std::abs(check->memory_error()));
    all.sum_time += std::abs(check->time_error());
    ++all.cases;
  }
  return true;
}

int run(const std::string& folder) {
  using planner::Recompute;
  const std::vector<Layout> schedules = {{8, 2, 1, "1f1b"},
                                         {8, 2, 2, "1f1b"},
                                         {8, 2, 1, "gpipe"},
                                         {8, 2, 1, "memory-min"},
                                         {8, 2, 1, "zb-1p"},
                                         {8, 2, 2, "v-shape"},
                                         {8, 2, 1, "1f1b", Recompute::kSelective},
                                         {8, 2, 1, "1f1b", Recompute::kFull},
                                         {8, 2, 1, "zb-1p", Recompute::kFull}};
  const std::vector<Layout> sizes = {{4, 1, 1, "1f1b"},  {8, 1, 1, "1f1b"},   {4, 4, 1, "zb-1p"},
                                     {16, 2, 1, "1f1b"}, {8, 8, 1, "zb-1p"},  {16, 8, 1, "1f1b"},
                                     {8, 32, 1, "1f1b"}, {16, 32, 1, "zb-1p"}};
  const Layout base = {8, 2, 1, "1f1b"};
  Errors errors;
  const std::clock_t begun = std::clock();
  bool ok = true;
  for (const char* cluster : {"a100-hgx", "a100-uneven", "a100-two-level"}) {
    ok = table(folder, cluster, 32, 64, base, schedules, errors) && ok;
    ok = table(folder, cluster, 32, 256, base, sizes, errors) && ok;
  }
  ok = table(folder, "h100-hgx", 61, 128, {16, 2, 1, "1f1b"},
             {{16, 4, 1, "1f1b"}, {31, 2, 1, "1f1b"}, {20, 4, 1, "zb-1p"}, {32, 4, 1, "1f1b"}},
             errors) &&
       ok;
  fmt::print(
      "\n{} layouts: step time off by {:.2f} % on average, {:.2f} % at most; memory {:.2f} % at "
      "most; {:.1f} s of CPU time\n",
      errors.cases, 100 * errors.sum_time / std::max(1, errors.cases), 100 * errors.worst_time,
      100 * errors.worst_memory, static_cast<double>(std::clock() - begun) / CLOCKS_PER_SEC);
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace flextrain::trainer

int main(int argc, char** argv) {
  return flextrain::trainer::run(argc > 1 ? argv[1] : "etc/devices");
}
