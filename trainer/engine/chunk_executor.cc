// SPDX-License-Identifier: MIT
#include "trainer/engine/chunk_executor.h"

#include <algorithm>
#include <bit>

namespace flextrain::trainer {
namespace {

// ⌈log2 n⌉ for n ≥ 1.
int bits_for(int64_t n) { return std::bit_width(static_cast<uint64_t>(n - 1)); }

}  // namespace

Result<std::unique_ptr<ChunkExecutor>> ChunkExecutor::make(Backend& backend,
                                                           const TrainConfig& config,
                                                           const planner::Plan& plan,
                                                           const RankLayout& layout,
                                                           LayerStore& store) {
  std::unique_ptr<ChunkExecutor> executor(new ChunkExecutor(backend, config, store));
  RETURN_IF_ERROR(executor->allocate(plan, layout));
  RETURN_IF_ERROR(executor->allocate_sink());
  return executor;
}

Status ChunkExecutor::allocate(const planner::Plan& plan, const RankLayout& layout) {
  const planner::LayerId head = head_layer(config_.model);
  total_micro_batches_ = layout.total_micro_batches;
  LayerMath::Kinds kinds;
  for (const RankChunk& chunk : layout.chunks)
    for (planner::LayerId layer : chunk.layers) {
      kinds.block |= layer > 0 && layer < head;
      kinds.head |= layer == head;
    }
  ASSIGN_OR_RETURN(math_,
                   LayerMath::make(backend_, config_.model, config_.micro_batch_size, kinds));

  split_backward_ = layout.split_backward;
  int64_t region = 0, workspace = 0, again = 0;
  for (const RankChunk& chunk : layout.chunks) {
    std::vector<LayerPlace> places;
    int64_t offset = 0, waiting = 0;
    for (planner::LayerId layer : chunk.layers) {
      LayerPlace place;
      place.layer = layer;
      place.is_block = layer > 0 && layer < head;
      // Embedding and head keep next to nothing; only blocks are worth computing twice.
      if (place.is_block) place.recompute = plan.recompute[static_cast<size_t>(layer)];
      place.out_offset = offset;
      if (layer != head) offset += math_->activation_size();
      place.saved_offset = offset;
      place.saved_size = math_->saved_size(layer, place.recompute);
      offset += place.saved_size;
      place.again_offset = waiting;
      place.again_size = math_->again_size(layer, place.recompute);
      waiting += place.again_size;
      place.kept_offset = waiting;
      if (place.is_block && split_backward_) waiting += math_->block_kept_size();
      again = std::max(again, place.again_size);
      places.push_back(place);
    }
    region = std::max(region, offset);
    workspace = std::max(workspace, waiting);
    chunks_.push_back(std::move(places));
  }
  slots_.resize(static_cast<size_t>(std::max(1, layout.slots)));
  for (Slot& slot : slots_) {
    ASSIGN_OR_RETURN(slot.input, backend_.allocate(DType::kFloat32, math_->activation_size()));
    ASSIGN_OR_RETURN(slot.gradient, backend_.allocate(DType::kFloat32, math_->activation_size()));
    ASSIGN_OR_RETURN(slot.region, backend_.allocate(DType::kFloat32, region));
  }
  workspaces_.resize(static_cast<size_t>(layout.workspaces));
  for (Tensor& tensor : workspaces_) {
    ASSIGN_OR_RETURN(tensor, backend_.allocate(DType::kFloat32, workspace));
  }
  ASSIGN_OR_RETURN(again_, backend_.allocate(DType::kFloat32, again));
  ASSIGN_OR_RETURN(tokens_, backend_.allocate(DType::kInt32, math_->rows()));
  ASSIGN_OR_RETURN(targets_, backend_.allocate(DType::kInt32, math_->rows()));
  ASSIGN_OR_RETURN(row_loss_, backend_.allocate(DType::kFloat64, math_->rows()));
  ASSIGN_OR_RETURN(status_, backend_.allocate(DType::kInt64, 1));
  host_tokens_.resize(static_cast<size_t>(math_->rows()));
  host_row_loss_.resize(static_cast<size_t>(math_->rows()));
  touched_.assign(static_cast<size_t>(head) + 1, false);
  wgrad_touched_ = head_touched_ = touched_;
  return {};
}

Status ChunkExecutor::allocate_sink() {
  const bool exact = config_.numerics == planner::Numerics::kExact;
  Tensor scratch;
  if (exact) {
    ASSIGN_OR_RETURN(scratch, backend_.allocate(DType::kFloat32, math_->largest_gradient()));
  }
  sink_ = std::make_unique<GradientSink>(backend_, config_.numerics, scratch, status_);
  const planner::LayerId head = head_layer(config_.model);
  const auto runs = [&](planner::LayerId layer) {
    return std::any_of(chunks_.begin(), chunks_.end(), [&](const auto& chunk) {
      return std::any_of(chunk.begin(), chunk.end(),
                         [&](const LayerPlace& place) { return place.layer == layer; });
    });
  };
  // fp32 sums depend on their order: with both ends here, the shares stay apart until the end, as
  // they do on two ranks.
  if (!exact && config_.model.tied_head && runs(0) && runs(head)) {
    ASSIGN_OR_RETURN(tied_gradient_,
                     backend_.allocate(DType::kFloat32, store_.layer(0).gradients.size()));
  }
  return {};
}

void ChunkExecutor::begin_step(int accumulation_scale, int64_t valid_tokens) {
  // Every token row of the embedding and the head's share are addends of their own.
  const int64_t addends = total_micro_batches_ * (math_->rows() + 1);
  sink_->set_fold({accumulation_scale, 62 - bits_for(addends)});
  loss_scale_ = static_cast<float>(1.0 / static_cast<double>(valid_tokens));
  backend_.fill_zero(status_);
  std::fill(touched_.begin(), touched_.end(), false);
  std::fill(wgrad_touched_.begin(), wgrad_touched_.end(), false);
  std::fill(head_touched_.begin(), head_touched_.end(), false);
  // The others are overwritten by their first micro-batch; the embedding only adds rows.
  if (store_.holds(0)) {
    backend_.fill_zero(store_.layer(0).gradients);
    touched_[0] = true;
  }
  if (tied_gradient_.valid()) backend_.fill_zero(tied_gradient_);
}

bool ChunkExecutor::first_touch(std::vector<bool>& touched, planner::LayerId layer) {
  const auto at = static_cast<size_t>(layer);
  const bool first = !touched[at];
  touched[at] = true;
  return first;
}

Tensor ChunkExecutor::out_of(const LayerPlace& place, int slot) const {
  return slots_[static_cast<size_t>(slot)].region.slice(place.out_offset, math_->activation_size());
}

SavedTensors ChunkExecutor::saved_of(const LayerPlace& place, int slot, int workspace) const {
  SavedTensors saved;
  saved.recompute = place.recompute;
  saved.kept = slots_[static_cast<size_t>(slot)].region.slice(place.saved_offset, place.saved_size);
  saved.again = workspace < 0 ? again_.slice(0, place.again_size)
                              : workspaces_[static_cast<size_t>(workspace)].slice(
                                    place.again_offset, place.again_size);
  return saved;
}

Tensor ChunkExecutor::kept_of(const LayerPlace& place, int workspace) const {
  return workspaces_[static_cast<size_t>(workspace)].slice(place.kept_offset,
                                                           math_->block_kept_size());
}

Tensor ChunkExecutor::input_of(int chunk, size_t index, int slot) const {
  if (index == 0) return input(slot);
  return out_of(chunks_[static_cast<size_t>(chunk)][index - 1], slot);
}

Tensor ChunkExecutor::output(int chunk, int slot) const {
  const auto& places = chunks_[static_cast<size_t>(chunk)];
  // A chunk of No-Ops alone hands on what it got.
  return places.empty() ? input(slot) : out_of(places.back(), slot);
}

void ChunkExecutor::turn_forward(int chunk, int from, int to) {
  // A chunk of No-Ops alone may already have it there.
  if (from == to && chunks_[static_cast<size_t>(chunk)].empty()) return;
  backend_.copy(input(to), output(chunk, from));
}

Tensor ChunkExecutor::head_matrix() {
  if (config_.model.tied_head) return store_.layer(0).weights;
  const StoredLayer& layer = store_.layer(head_layer(config_.model));
  return layer.weights.slice(layer.parameters.back().offset, layer.parameters.back().size);
}

Tensor ChunkExecutor::head_matrix_gradient() {
  if (tied_gradient_.valid()) return tied_gradient_;
  if (config_.model.tied_head) return store_.layer(0).gradients;
  const StoredLayer& layer = store_.layer(head_layer(config_.model));
  return layer.gradients.slice(layer.parameters.back().offset, layer.parameters.back().size);
}

void ChunkExecutor::forward(int chunk, int slot, const GlobalBatch& batch, int64_t first_sample,
                            bool train, std::span<double> sample_loss, StepProfiler* profiler) {
  const auto& places = chunks_[static_cast<size_t>(chunk)];
  for (size_t i = 0; i < places.size(); ++i) {
    const LayerPlace& place = places[i];
    const Event begun = backend_.record_event();
    const Tensor x = input_of(chunk, i, slot);
    if (place.layer == 0) {
      batch.copy_inputs(first_sample, host_tokens_);
      backend_.upload(tokens_, std::span<const int32_t>(host_tokens_));
      math_->embedding_forward(store_.layer(0).weights, tokens_, out_of(place, slot));
    } else if (place.layer == head_layer(config_.model)) {
      head_forward(place, x, slot, batch, first_sample, train, sample_loss);
    } else {
      math_->block_forward(store_.layer(place.layer).weights, x, out_of(place, slot),
                           saved_of(place, slot, -1));
    }
    if (profiler != nullptr)
      profiler->end_layer(place.layer, StepProfiler::Part::kForward,
                          backend_.seconds_between(begun, backend_.record_event()));
  }
}

void ChunkExecutor::head_forward(const LayerPlace& place, Tensor x, int slot,
                                 const GlobalBatch& batch, int64_t first_sample, bool train,
                                 std::span<double> sample_loss) {
  batch.copy_targets(first_sample, host_tokens_);
  backend_.upload(targets_, std::span<const int32_t>(host_tokens_));
  // A tied matrix's gradient was emptied by begin_step().
  const bool first = train && first_touch(head_touched_, place.layer) && !config_.model.tied_head;
  math_->head_forward(store_.layer(place.layer).weights, head_matrix(), x, targets_,
                      saved_of(place, slot, -1).kept, row_loss_, loss_scale_, train,
                      head_matrix_gradient(), sink_.get(), first);
  backend_.download(row_loss_, std::span<double>(host_row_loss_));
  const int64_t length = config_.model.sequence;
  for (int64_t i = 0; i < config_.micro_batch_size && first_sample + i < batch.samples(); ++i) {
    double sum = 0;  // rows in order
    for (int64_t row = i * length; row < (i + 1) * length; ++row)
      sum += host_row_loss_[static_cast<size_t>(row)];
    sample_loss[static_cast<size_t>(first_sample + i)] = sum;
  }
}

void ChunkExecutor::recompute(const RankAction& action, StepProfiler* profiler) {
  const int chunk = action.action.chunk, slot = action.action.slot;
  const auto& places = chunks_[static_cast<size_t>(chunk)];
  for (size_t i = 0; i < places.size(); ++i)
    recompute_layer(places[i], input_of(chunk, i, slot),
                    saved_of(places[i], slot, action.workspace), profiler);
}

void ChunkExecutor::recompute_layer(const LayerPlace& place, Tensor x, const SavedTensors& saved,
                                    StepProfiler* profiler) {
  if (place.recompute == Recompute::kNone) return;
  const Event begun = backend_.record_event();
  math_->block_recompute(store_.layer(place.layer).weights, x, saved);
  if (profiler != nullptr)
    profiler->end_layer(place.layer, StepProfiler::Part::kRecompute,
                        backend_.seconds_between(begun, backend_.record_event()));
}

void ChunkExecutor::backward(const RankAction& action, const GlobalBatch& batch,
                             int64_t first_sample, StepProfiler* profiler) {
  const int chunk = action.action.chunk, slot = action.action.slot;
  const auto& places = chunks_[static_cast<size_t>(chunk)];
  const Tensor grad = gradient(slot);
  for (size_t i = places.size(); i-- > 0;) {
    const LayerPlace& place = places[i];
    if (place.layer == 0 && split_backward_) continue;  // it has weight gradients only
    StoredLayer& layer = store_.layer(place.layer);
    const Tensor x = input_of(chunk, i, slot);
    const SavedTensors saved = saved_of(place, slot, action.workspace);
    if (!action.recomputed) recompute_layer(place, x, saved, profiler);
    const bool first = first_touch(touched_, place.layer);
    const Event begun = backend_.record_event();
    if (place.layer == 0) {
      embedding_backward(batch, first_sample, grad);
    } else if (!place.is_block) {
      math_->head_backward(layer.weights, x, saved.kept, grad, layer.gradients, *sink_, first);
    } else {
      if (split_backward_)
        math_->block_backward_input(layer.weights, x, saved, grad, kept_of(place, action.workspace),
                                    layer.gradients, *sink_, first);
      else
        math_->block_backward(layer.weights, x, saved, grad, layer.gradients, *sink_, first);
    }
    if (profiler != nullptr)
      profiler->end_layer(place.layer, StepProfiler::Part::kBackward,
                          backend_.seconds_between(begun, backend_.record_event()));
  }
}

void ChunkExecutor::wgrad(const RankAction& action, const GlobalBatch& batch, int64_t first_sample,
                          StepProfiler* profiler) {
  const int chunk = action.action.chunk, slot = action.action.slot;
  const auto& places = chunks_[static_cast<size_t>(chunk)];
  for (size_t i = places.size(); i-- > 0;) {
    const LayerPlace& place = places[i];
    if (place.layer != 0 && !place.is_block) continue;
    StoredLayer& layer = store_.layer(place.layer);
    const Event begun = backend_.record_event();
    if (place.layer == 0)
      embedding_backward(batch, first_sample, gradient(slot));
    else
      math_->block_backward_weight(layer.weights, input_of(chunk, i, slot),
                                   saved_of(place, slot, action.workspace),
                                   kept_of(place, action.workspace), layer.gradients, *sink_,
                                   first_touch(wgrad_touched_, place.layer));
    if (profiler != nullptr)
      profiler->end_layer(place.layer, StepProfiler::Part::kWgrad,
                          backend_.seconds_between(begun, backend_.record_event()));
  }
}

void ChunkExecutor::embedding_backward(const GlobalBatch& batch, int64_t first_sample,
                                       Tensor grad) {
  batch.copy_inputs(first_sample, host_tokens_);
  backend_.upload(tokens_, std::span<const int32_t>(host_tokens_));
  math_->embedding_backward(tokens_, grad, store_.layer(0).gradients, *sink_);
}

Result<int64_t> ChunkExecutor::finish_gradients() {
  // A pipeline without micro-batches adds nothing.
  for (StoredLayer& layer : store_.layers())
    if (!touched_[static_cast<size_t>(layer.held.layer)]) backend_.fill_zero(layer.gradients);
  if (tied_gradient_.valid()) {
    const Tensor sum = store_.layer(0).gradients;
    backend_.add(sum, tied_gradient_, sum);
  }
  int64_t worst = 0;
  backend_.download(status_, std::span<int64_t>(&worst, 1));
  RETURN_IF_ERROR(backend_.synchronize());
  return worst;
}

int64_t ChunkExecutor::activation_bytes(planner::LayerId layer) const {
  for (const auto& chunk : chunks_)
    for (const LayerPlace& place : chunk) {
      if (place.layer != layer) continue;
      const int64_t out = layer == head_layer(config_.model) ? 0 : math_->activation_size();
      return (out + place.saved_size) * dtype_bytes(DType::kFloat32);
    }
  return 0;
}

}  // namespace flextrain::trainer
