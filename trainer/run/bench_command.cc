// SPDX-License-Identifier: MIT
// flextrain-trainer bench: times steps without touching checkpoints or metrics.
#include <algorithm>
#include <cstdio>
#include <vector>

#include "base/log.h"
#include "trainer/checkpoint/collective.h"
#include "trainer/engine/engine.h"
#include "trainer/run/commands.h"
#include "trainer/run/exit_code.h"
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

Status bench(Communicator& world, const BenchOptions& options) {
  ASSIGN_OR_RETURN(const Session session, open_session(world, options.train, ControlDir("")));
  Result<std::unique_ptr<Engine>> made = make_engine(session.config, session.plan, world);
  RETURN_IF_ERROR(agree(world, made.status()));
  Engine& engine = **made;
  RETURN_IF_ERROR(agree(world, engine.initialize()));
  std::vector<double> seconds;
  int64_t tokens = 0;
  // One step more: the first one warms caches up and is not counted.
  for (int step = 0; step <= options.steps; ++step) {
    const Stopwatch watch;
    const int64_t consumed = int64_t{step} * session.config.global_batch;
    const Result<StepResult> result =
        engine.train_step(step, consumed, session.dataset, false, false);
    if (!result.ok()) {
      log_error("rank {}: {}", world.rank(), result.status().message());
      abort_world(kExitFailed);
    }
    tokens = result->tokens;
    if (step > 0) seconds.push_back(watch.seconds());
  }
  if (world.rank() != 0) return {};
  std::sort(seconds.begin(), seconds.end());
  const double median = seconds[seconds.size() / 2];
  const double rate = static_cast<double>(tokens) / median;
  fmt::print("{}\n", planner::plan_summary(session.plan));
  fmt::print("step seconds: median {:.4f}, fastest {:.4f}, slowest {:.4f} ({} steps)\n", median,
             seconds.front(), seconds.back(), seconds.size());
  fmt::print("tokens/s: {:.0f}\n", rate);
  fmt::print("model GFLOP/s: {:.1f}\n", rate * flops_per_token(session.config.model) / 1e9);
  return {};
}

}  // namespace

int bench_command(Communicator& world, const BenchOptions& options) {
  const Status status = bench(world, options);
  if (status.ok()) return kExitComplete;
  if (world.rank() == 0) log_error("{}", status.message());
  return exit_code_for(status);
}

}  // namespace flextrain::trainer
