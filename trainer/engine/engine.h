// SPDX-License-Identifier: MIT
// trainer/engine: executes a Plan. Owns this rank's layers (weights, gradients, moments of its own
// layers and nothing more), runs the schedule's actions, reduces gradients, clips, steps AdamW, and
// profiles every action. Knows no files: data comes through BatchSource, state goes in and out as
// LayerState.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "planner/plan.h"
#include "planner/scale_table.h"
#include "trainer/backend/backend.h"
#include "trainer/comm/communicator.h"
#include "trainer/config/train_config.h"

namespace flextrain::trainer {

// Where tokens come from. `sample` is a global sample index (a pure function of seed and consumed
// samples maps it to text): writes sequence+1 tokens, input = [0, T), target = [1, T+1).
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  virtual void training_sample(int64_t sample, std::span<int32_t> tokens) const = 0;
  virtual void evaluation_sample(int64_t sample, std::span<int32_t> tokens) const = 0;
};

// One tensor of a layer on the host, as a checkpoint stores it. Names never mention a rank or
// stage: "attention.wq.weight", and for the moments the same with role kFirstMoment /
// kSecondMoment.
enum class TensorRole { kWeight, kFirstMoment, kSecondMoment };
struct NamedTensor {
  std::string name;
  TensorRole role = TensorRole::kWeight;
  std::vector<int64_t> shape;
  std::vector<float> values;
};
struct LayerState {
  planner::LayerId layer = 0;
  std::vector<NamedTensor> tensors;  // fixed order
};

struct StepResult {
  double loss = 0;  // token-mean over the global batch, equal on all ranks; without MTP's
  std::vector<double> mtp_losses;  // the same of each MTP depth, not scaled
  double grad_norm = 0;            // before clipping
  double learning_rate = 0;
  int64_t tokens = 0;          // of the global batch
  int accumulation_scale = 0;  // S in force after this step (exact)
  bool any_flag = false;       // some rank called with flag = true (all ranks agree)
};

// One executed action of the last profiled step, for the Chrome trace. Seconds since the step
// began.
struct TraceEvent {
  planner::Action action;
  int chunk_layers = 0;
  double begin = 0, end = 0;
  // Bytes in use on this rank (trainer/engine/action_memory.h).
  int64_t memory_before = 0, memory_after = 0;
};

class Engine {
 public:
  virtual ~Engine() = default;

  // Fresh weights: a pure function of (seed, layer id, tensor name), never of the layout.
  virtual Status initialize() = 0;
  // One optimiser step on samples [consumed, consumed + global_batch). `flag` is this rank's
  // request (signal seen, clock says checkpoint); StepResult::any_flag is its OR over all ranks, so
  // that all act at the same step. `profile` records per-action times of this step.
  virtual Result<StepResult> train_step(int64_t step, int64_t consumed_samples,
                                        const BatchSource& data, bool flag, bool profile) = 0;
  // Token-mean loss over evaluation samples [0, sequences), equal on all ranks. No state changes.
  virtual Result<double> evaluate(const BatchSource& data, int sequences) = 0;

  // From the next step on the schedule of `plan`, whose placement and recomputation must be the
  // running one's (else kInvalidArgument); the profile starts anew. Every rank must call it.
  virtual Status change_schedule(const planner::Plan& plan) = 0;

  // The layers this rank must save (each layer is saved by exactly one rank: the first pipeline
  // that holds it) and the layers it holds (which it must load).
  virtual std::vector<planner::LayerId> layers_to_save() const = 0;
  virtual std::vector<planner::LayerId> layers_held() const = 0;
  virtual Result<LayerState> export_layer(planner::LayerId layer) const = 0;
  virtual Status import_layer(const LayerState& state) = 0;
  virtual int accumulation_scale() const = 0;
  virtual void set_accumulation_scale(int scale) = 0;

  // Collective: the profile averaged over the profiled steps, equal on all ranks, and this rank's
  // events of the last profiled step.
  virtual Result<planner::StepProfile> profile() = 0;
  virtual const std::vector<TraceEvent>& trace() const = 0;
  // The next profile() is of the steps profiled from now on.
  virtual void restart_profile() = 0;
  // Bytes this rank holds for weights, gradients and moments; all it has taken of its device.
  virtual int64_t static_bytes() const = 0;
  virtual int64_t device_bytes() const = 0;
};

// `world` must outlive the engine and have num_ranks(plan) ranks. config.model.vocab > 0. Without a
// backend the CPU's is taken.
Result<std::unique_ptr<Engine>> make_engine(const TrainConfig& config, const planner::Plan& plan,
                                            Communicator& world,
                                            std::unique_ptr<Backend> backend = nullptr);

// What decides the bits besides the config: backend, library version, ISA in use, accumulation unit
// ("cpu;onednn-2.6.3;avx512_core_bf16;mb=1"). Compared as a whole string.
std::string numerics_fingerprint(const TrainConfig& config);

}  // namespace flextrain::trainer
