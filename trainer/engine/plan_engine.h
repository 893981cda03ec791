// SPDX-License-Identifier: MIT
// The Engine that executes Plans. Per step, on every rank:
//
//   load batch → actions (forward, backward, transfers) ─┐
//        ▲                                               ▼
//        └── saturated: all redo with S-8 ── max over ranks of {fold status, flag}
//                                                        ▼
//              sum gradients per layer → norms and losses in slots, summed → AdamW
#pragma once

#include <memory>
#include <vector>

#include "trainer/backend/backend.h"
#include "trainer/engine/chunk_executor.h"
#include "trainer/engine/engine.h"
#include "trainer/engine/global_batch.h"
#include "trainer/engine/gradient_reducer.h"
#include "trainer/engine/layer_store.h"
#include "trainer/engine/rank_layout.h"
#include "trainer/engine/step_profiler.h"

namespace flextrain::trainer {

class PlanEngine final : public Engine {
 public:
  static Result<std::unique_ptr<Engine>> make(const TrainConfig& config, const planner::Plan& plan,
                                              Communicator& world,
                                              std::unique_ptr<Backend> backend);

  Status initialize() override { return store_.initialize(config_.seed); }
  Result<StepResult> train_step(int64_t step, int64_t consumed_samples, const BatchSource& data,
                                bool flag, bool profile) override;
  Result<double> evaluate(const BatchSource& data, int sequences) override;
  Status change_schedule(const planner::Plan& plan) override;

  std::vector<planner::LayerId> layers_to_save() const override;
  std::vector<planner::LayerId> layers_held() const override;
  Result<LayerState> export_layer(planner::LayerId layer) const override {
    return store_.export_layer(layer);
  }
  Status import_layer(const LayerState& state) override { return store_.import_layer(state); }
  int accumulation_scale() const override { return scale_; }
  void set_accumulation_scale(int scale) override { scale_ = scale; }

  Result<planner::StepProfile> profile() override;
  const std::vector<TraceEvent>& trace() const override { return profiler_->trace(); }
  void restart_profile() override { profiler_->restart(); }
  int64_t static_bytes() const override;
  int64_t device_bytes() const override { return backend_->allocated_bytes(); }

 private:
  PlanEngine(const TrainConfig& config, const planner::Plan& plan, Communicator& world)
      : config_(config),
        plan_(plan),
        world_(world),
        batch_(config.model),
        eval_batch_(config.model),
        scale_(config.accumulation_scale) {}
  Status open();
  void make_profiler();
  int losses() const { return config_.global_batch * (1 + config_.model.mtp_num_layers); }
  Status load_batch(GlobalBatch& batch, const BatchSource& data, bool evaluation, int64_t first,
                    int64_t count);

  // The actions up to the reduction; the worst fold status.
  Result<int64_t> run_actions();
  Status run_action(const RankAction& resolved, const ActionMemory& memory);
  ActionMemory all_free() const { return {static_bytes(), static_bytes()}; }
  // Repeats run_actions() until no rank saturates; ORs the flags.
  Result<bool> compute_gradients(int64_t step, bool flag);
  Status reduce_gradients();
  // Fills loss and norm slots and sums them over the ranks.
  Status sum_slots();
  void update_weights(int64_t consumed_samples, double grad_norm);
  Status evaluate_micro_batch(int64_t index);

  const TrainConfig config_;
  planner::Plan plan_;
  Communicator& world_;
  RankLayout layout_;
  std::unique_ptr<Backend> backend_;
  LayerStore store_;
  std::unique_ptr<ChunkExecutor> executor_;
  GradientReducer reducer_;
  std::unique_ptr<StepProfiler> profiler_;
  std::vector<ActionMemory> action_memory_;  // of layout_.actions
  GlobalBatch batch_, eval_batch_;
  // [global_batch losses, again per MTP depth | one norm per parameter of the model]
  std::vector<double> slots_;
  std::vector<size_t> norm_begin_;  // per layer id, its first norm slot
  std::vector<double> eval_loss_;
  Tensor norm_;
  int scale_;
};

}  // namespace flextrain::trainer
