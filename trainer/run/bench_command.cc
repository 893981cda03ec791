// SPDX-License-Identifier: MIT
// flextrain-trainer bench: times steps without touching checkpoints or metrics.
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <string>
#include <vector>

#include "base/log.h"
#include "planner/predict.h"
#include "trainer/checkpoint/collective.h"
#include "trainer/engine/engine.h"
#include "trainer/run/commands.h"
#include "trainer/run/exit_code.h"
#include "trainer/run/plan_choice.h"
#include "trainer/run/session.h"
#include "trainer/run/step_clock.h"

namespace flextrain::trainer {
namespace {

// Multiply-adds of the matrix products count 2, the backward pass twice the forward; attention
// scores and values at full sequence length (the causal half is computed too).
double flops_per_token(const ModelConfig& m) {
  const double hidden = m.hidden, ffn = m.ffn;
  const double kv = hidden / m.heads * m.kv_heads;
  const double layer = 2 * hidden * hidden + 2 * hidden * kv + 3 * hidden * ffn;
  const double attention = 2.0 * m.sequence * hidden;
  const double mtp = layer + attention + 2 * hidden * hidden + hidden * m.vocab;
  return 6 * (m.layers * (layer + attention) + hidden * m.vocab + m.mtp_num_layers * mtp);
}

double median(std::vector<double>& seconds) {
  std::sort(seconds.begin(), seconds.end());
  return seconds.empty() ? 0 : seconds[seconds.size() / 2];
}

// Where the median of what the samples come from lies with 95 % confidence: between the two order
// statistics that a fair coin's tosses leave out (the sign test's interval).
struct Interval {
  double low = 0, median = 0, high = 0;
};
Interval median_interval(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto n = static_cast<double>(values.size());
  const auto out = static_cast<size_t>(std::max(0.0, std::floor((n - 1.96 * std::sqrt(n)) / 2)));
  return {values[out], values[values.size() / 2], values[values.size() - 1 - out]};
}

// One step: on the wall, on this rank's processor, and whether the kernel took that away meanwhile
// for somebody else.
struct StepTime {
  double wall = 0, cpu = 0;
  bool interrupted = false;
};

int64_t interruptions() {
  rusage usage{};
  return getrusage(RUSAGE_SELF, &usage) == 0 ? usage.ru_nivcsw : 0;
}

struct Timing {
  std::vector<StepTime> plain, profiled;  // equal places make a pair
  int64_t tokens = 0;
  planner::StepProfile profile;
};

std::vector<double> wall_seconds(const std::vector<StepTime>& steps) {
  std::vector<double> seconds;
  for (const StepTime& step : steps) seconds.push_back(step.wall);
  return seconds;
}

// By how many percent the profiled step of each pair is above the other, in `time`; of the pairs
// that nobody interrupted, where asked for.
std::string dearer(const Timing& timing, double StepTime::*time, bool undisturbed) {
  std::vector<double> percent;
  for (size_t pair = 0; pair < timing.plain.size(); ++pair) {
    const StepTime &plain = timing.plain[pair], &profiled = timing.profiled[pair];
    if (undisturbed && (plain.interrupted || profiled.interrupted)) continue;
    if (plain.*time > 0) percent.push_back(100 * (profiled.*time / plain.*time - 1));
  }
  if (percent.empty()) return "unknown";
  const size_t pairs = percent.size();
  const Interval of = median_interval(std::move(percent));
  return fmt::format("{:+.2f} % (95 %: {:+.2f} to {:+.2f}, {} pairs)", of.median, of.low, of.high,
                     pairs);
}

// Steps of one layout, in pairs with and without the profiler, first the one, then the other, so
// that both see the same machine.
Result<Timing> time_steps(Communicator& world, const Session& session, const planner::Plan& plan,
                          int steps) {
  Result<std::unique_ptr<Engine>> made = make_engine(session.config, plan, world);
  RETURN_IF_ERROR(agree(world, made.status()));
  Engine& engine = **made;
  RETURN_IF_ERROR(agree(world, engine.initialize()));
  Timing timing;
  // One step more: the first one warms caches up and is not counted.
  for (int step = 0; step <= 2 * steps; ++step) {
    // Without, with; with, without; …
    const bool profile = step > 0 && (step - 1) / 2 % 2 != (step - 1) % 2;
    const Stopwatch watch;
    const std::clock_t cpu = std::clock();
    const int64_t before = interruptions();
    const int64_t consumed = int64_t{step} * session.config.global_batch;
    const Result<StepResult> result =
        engine.train_step(step, consumed, session.dataset, false, profile);
    if (!result.ok()) {
      log_error("rank {}: {}", world.rank(), result.status().message());
      abort_world(kExitFailed);
    }
    timing.tokens = result->tokens;
    if (step == 0) continue;
    (profile ? timing.profiled : timing.plain)
        .push_back({watch.seconds(), static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC,
                    interruptions() > before});
  }
  ASSIGN_OR_RETURN(timing.profile, engine.profile());
  return timing;
}

// Other layouts and schedules of the same ranks: what the profile foretells, what they take.
Status compare(Communicator& world, const Session& session, const planner::StepProfile& profile,
               int steps) {
  const planner::MeasuredLayout measured = planner::measured_layout(profile, session.plan);
  ASSIGN_OR_RETURN(const planner::Prediction known,
                   planner::predict(profile, measured, session.plan));
  TrainConfig config = session.config;
  config.virtual_stages = 1;
  if (world.rank() == 0) fmt::print("\npredicted  measured  error %  layout\n");
  for (const auto& [stages, schedule] :
       {std::pair(world.size(), "1f1b"), std::pair(world.size(), "gpipe"),
        std::pair(world.size(), "zb-1p"), std::pair(1, "1f1b")}) {
    config.schedule = schedule;
    const Result<planner::Plan> plan = regular_plan(config, stages, world.size() / stages);
    if (!plan.ok()) continue;  // the batch or the layers do not allow it: on all ranks alike
    ASSIGN_OR_RETURN(const planner::Prediction prediction,
                     planner::predict(profile, measured, *plan));
    ASSIGN_OR_RETURN(Timing timing, time_steps(world, session, *plan, steps));
    const double expected = prediction.step_seconds * profile.step_seconds / known.step_seconds;
    std::vector<double> seconds = wall_seconds(timing.plain);
    const double found = median(seconds);
    if (world.rank() != 0) continue;
    fmt::print("{:<9.4g}  {:<8.4g}  {:>+7.2f}  {}\n", expected, found, 100 * (expected / found - 1),
               planner::plan_summary(*plan));
  }
  return {};
}

Status bench(Communicator& world, const BenchOptions& options) {
  ASSIGN_OR_RETURN(const Session session, open_session(world, options.train, ControlDir("")));
  ASSIGN_OR_RETURN(Timing timing, time_steps(world, session, session.plan, options.steps));
  std::vector<double> seconds = wall_seconds(timing.plain);
  const double typical = median(seconds);
  if (world.rank() == 0) {
    const double rate = static_cast<double>(timing.tokens) / typical;
    fmt::print("{}\n", planner::plan_summary(session.plan));
    fmt::print("step seconds: median {:.4f}, fastest {:.4f}, slowest {:.4f} ({} steps)\n", typical,
               seconds.front(), seconds.back(), seconds.size());
    fmt::print("tokens/s: {:.0f}\n", rate);
    fmt::print("model GFLOP/s: {:.1f}\n", rate * flops_per_token(session.config.model) / 1e9);
    fmt::print(
        "with the profiler, per pair of steps: wall time {}, of pairs that no other process "
        "interrupted {}, CPU time {}\n",
        dearer(timing, &StepTime::wall, false), dearer(timing, &StepTime::wall, true),
        dearer(timing, &StepTime::cpu, false));
  }
  if (!options.compare) return {};
  return compare(world, session, timing.profile, options.steps);
}

}  // namespace

int bench_command(Communicator& world, const BenchOptions& options) {
  const Status status = bench(world, options);
  if (status.ok()) return kExitComplete;
  if (world.rank() == 0) log_error("{}", status.message());
  return exit_code_for(status);
}

}  // namespace flextrain::trainer
