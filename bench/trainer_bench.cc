// SPDX-License-Identifier: MIT
// Tokens per second of the CPU trainer, on synthetic tokens, one thread per rank.
//
//   trainer_bench [a|b] [exact|fp32] [steps]      (under mpirun: pipelines of one stage, DP =
//   ranks)
//
// a: 4 layers, d 256, 4 heads, ff 704, batch 8; b: 12 layers, d 768, 12 heads, ff 2048, batch 2;
// both V 8192, T 256: what the PyTorch peer was measured with.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "trainer/engine/engine.h"

namespace flextrain::trainer {
namespace {

TrainConfig bench_config(bool large) {
  TrainConfig config;
  config.model.layers = large ? 12 : 4;
  config.model.hidden = large ? 768 : 256;
  config.model.heads = config.model.kv_heads = large ? 12 : 4;
  config.model.ffn = large ? 2048 : 704;
  config.model.vocab = 8192;
  config.model.sequence = 256;
  config.global_batch = large ? 2 : 8;
  return config;
}

class RandomTokens final : public BatchSource {
 public:
  void training_sample(int64_t sample, std::span<int32_t> tokens) const override {
    uint64_t state = static_cast<uint64_t>(sample) * 0x9E3779B97F4A7C15u + 1;
    for (int32_t& token : tokens) {
      state ^= state << 13, state ^= state >> 7, state ^= state << 17;
      token = static_cast<int32_t>(state % 8192);
    }
  }
  void evaluation_sample(int64_t sample, std::span<int32_t> tokens) const override {
    training_sample(sample, tokens);
  }
};

Status bench(const TrainConfig& config, int steps, Communicator& world) {
  planner::RegularLayout layout;
  layout.num_transformer_layers = config.model.layers;
  layout.data_parallel = world.size();
  layout.global_batch = config.global_batch;
  layout.numerics = config.numerics;
  ASSIGN_OR_RETURN(const planner::Plan plan, planner::make_regular_plan(layout));
  ASSIGN_OR_RETURN(const auto engine, make_engine(config, plan, world));
  RETURN_IF_ERROR(engine->initialize());
  const RandomTokens tokens;
  double best = 0;
  for (int64_t step = 0; step <= steps; ++step) {
    const auto begin = std::chrono::steady_clock::now();
    ASSIGN_OR_RETURN(const StepResult result,
                     engine->train_step(step, step * config.global_batch, tokens, false, step > 0));
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
    const double rate = static_cast<double>(result.tokens) / spent.count();
    if (step > 0) best = std::max(best, rate);  // the first one warms up
    if (world.rank() == 0)
      std::printf("step %ld  loss %.4f  %.0f tokens/s\n", static_cast<long>(step), result.loss,
                  rate);
  }
  ASSIGN_OR_RETURN(const planner::StepProfile profile, engine->profile());
  if (world.rank() != 0) return {};
  std::printf("best %.0f tokens/s\n", best);
  const double micro_batches = config.global_batch / world.size();
  for (size_t i = 0; i < profile.layers.size(); ++i)
    std::printf("layer %2zu  forward %7.2f ms  backward %7.2f ms per step\n", i,
                1e3 * micro_batches * profile.layers[i].forward,
                1e3 * micro_batches * profile.layers[i].backward);
  std::printf("optimiser %.2f ms  reduce %.2f ms  step %.2f ms\n", 1e3 * profile.optimizer_seconds,
              1e3 * profile.reduce_seconds, 1e3 * profile.step_seconds);
  return {};
}

}  // namespace
}  // namespace flextrain::trainer

int main(int argc, char** argv) {
  using namespace flextrain::trainer;
  auto world = open_world(&argc, &argv);
  if (!world.ok()) {
    std::fprintf(stderr, "%s\n", world.status().to_string().c_str());
    return 1;
  }
  TrainConfig config = bench_config(argc > 1 && std::string(argv[1]) == "b");
  if (argc > 2 && std::string(argv[2]) == "fp32")
    config.numerics = flextrain::planner::Numerics::kFp32;
  const flextrain::Status status = bench(config, argc > 3 ? std::atoi(argv[3]) : 5, **world);
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.to_string().c_str());
    abort_world(1);
  }
  world->reset();
  close_world();
  return 0;
}
