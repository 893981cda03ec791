// SPDX-License-Identifier: MIT
// Runs this rank's chunks of layers: owns the activation slots and the scratch, and collects weight
// gradients in the LayerStore. Knows no other rank.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "trainer/backend/backend.h"
#include "trainer/engine/global_batch.h"
#include "trainer/engine/layer_store.h"
#include "trainer/engine/rank_layout.h"
#include "trainer/engine/step_profiler.h"
#include "trainer/model/gradient_sink.h"
#include "trainer/model/layer_math.h"

namespace flextrain::trainer {

class ChunkExecutor {
 public:
  // `store` and `backend` must outlive the executor.
  static Result<std::unique_ptr<ChunkExecutor>> make(Backend& backend, const TrainConfig& config,
                                                     const planner::Plan& plan,
                                                     const RankLayout& layout, LayerStore& store);

  // Another schedule of the same chunks: makes room for what it holds.
  Status change_schedule(const planner::Plan& plan, const RankLayout& layout);

  // Before the first action of a step: empties the gradients. Also before doing it again.
  void begin_step(int accumulation_scale, const GlobalBatch& batch);

  // One micro-batch, `batch` samples [first_sample, first_sample + micro_batch_size). Chunks with a
  // loss write each sample's sum to sample_loss[depth · batch samples + its index in the batch].
  // Without `train` layers of MTP are left out. `profiler` may be null.
  void forward(int chunk, int slot, const GlobalBatch& batch, int64_t first_sample, bool train,
               std::span<double> sample_loss, StepProfiler* profiler);
  // Computes again what the chunk's layers did not keep, into the action's workspace.
  void recompute(const RankAction& action, StepProfiler* profiler);
  // Where the schedule splits it: the gradient by the input, and those of the norms; what wgrad()
  // needs of it stays in the workspace.
  void backward(const RankAction& action, const GlobalBatch& batch, int64_t first_sample,
                StepProfiler* profiler);
  // The weight gradients that backward() left. The head's matrix has its own from forward(), where
  // the logits were.
  void wgrad(const RankAction& action, const GlobalBatch& batch, int64_t first_sample,
             StepProfiler* profiler);

  // After the last action: gradients are complete for reduction. Returns the worst fold status: 0,
  // kFoldSaturated or kFoldNotFinite, or the backend's error.
  Result<int64_t> finish_gradients();

  // Where a V turns: the output of `chunk`, in `from`, becomes the next chunk's input in `to`; and
  // the gradient of that input becomes the output's.
  void turn_forward(int chunk, int from, int to);
  void turn_backward(int from, int to) { backend_.copy(gradient(to), gradient(from)); }

  // What crosses between stages, [rows, hidden] each.
  Tensor input(int slot) const { return slots_[static_cast<size_t>(slot)].input; }
  Tensor gradient(int slot) const { return slots_[static_cast<size_t>(slot)].gradient; }
  Tensor output(int chunk, int slot) const;

  // What the planner must know of a layer that is held here.
  struct LayerNeeds {
    int64_t activation_bytes = 0;  // of one micro-batch from forward to backward, all kept
    int64_t selective_bytes = 0;   // of them, what selective recomputation drops
    int64_t kept_bytes = 0;        // from input gradient to weight gradients, where they are split
    int64_t working_bytes = 0, gradient_scratch_bytes = 0;  // planner::LayerProfile
  };
  LayerNeeds needs_of(planner::LayerId layer) const;
  int64_t hop_bytes() const;

 private:
  struct Slot {
    Tensor input, gradient;
    Tensor region;  // outputs and saved tensors of a chunk's layers
  };
  struct LayerPlace {  // a layer's part of a slot's region
    planner::LayerId layer = 0;
    Recompute recompute = Recompute::kNone;
    int64_t out_offset = 0, saved_offset = 0, saved_size = 0;
    int64_t again_offset = 0, again_size = 0, kept_offset = 0;  // in a workspace
    LayerKind kind = LayerKind::kBlock;
    int depth = 0;  // of MTP
  };

  ChunkExecutor(Backend& backend, const TrainConfig& config, LayerStore& store)
      : backend_(backend), config_(config), store_(store) {}
  Status allocate(const planner::Plan& plan, const RankLayout& layout);
  void place_layers(const planner::Plan& plan, const RankLayout& layout);
  Status make_room(const RankLayout& layout);
  Status allocate_sink();
  Tensor out_of(const LayerPlace& place, int slot) const;
  SavedTensors saved_of(const LayerPlace& place, int slot, int workspace) const;
  void recompute_layer(const LayerPlace& place, Tensor x, const SavedTensors& saved,
                       StepProfiler* profiler);
  Tensor kept_of(const LayerPlace& place, int workspace) const;
  int64_t kept_size(const LayerPlace& place) const;
  LayerMath::MtpTokens tokens_ahead(const LayerPlace& place, const GlobalBatch& batch,
                                    int64_t first_sample);
  void upload_tokens(const GlobalBatch& batch, int64_t first_sample, int depth);
  void embedding_backward(const GlobalBatch& batch, int64_t first_sample, Tensor grad);
  // What the index-th layer of a chunk gets, or, past the last one, what leaves the chunk.
  Tensor input_of(int chunk, size_t index, int slot) const;
  void head_forward(const LayerPlace& place, Tensor x, int slot, const GlobalBatch& batch,
                    int64_t first_sample, bool train, std::span<double> sample_loss);
  Tensor head_matrix();
  Tensor head_matrix_gradient();
  // True the first time in a step.
  bool first_touch(std::vector<bool>& touched, planner::LayerId layer);

  Backend& backend_;
  const TrainConfig config_;
  LayerStore& store_;
  std::unique_ptr<LayerMath> math_;
  std::unique_ptr<GradientSink> sink_;
  std::vector<std::vector<LayerPlace>> chunks_;
  std::vector<Slot> slots_;
  std::vector<Tensor> workspaces_;
  int64_t region_size_ = 0, workspace_size_ = 0;
  bool split_backward_ = false;
  Tensor again_;  // recomputed tensors of one layer, where no workspace holds them
  Tensor tokens_, targets_, row_loss_, status_;
  Tensor tied_gradient_;  // fp32, tied, both ends here: the head's share, added at the end
  std::vector<int32_t> host_tokens_;
  std::vector<double> host_row_loss_;
  // Per layer id; norms and matrices are reached by different actions where backward is split.
  std::vector<bool> touched_, wgrad_touched_, head_touched_;
  int64_t total_micro_batches_ = 1;
  std::vector<float> loss_scale_;  // per depth
};

}  // namespace flextrain::trainer
