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
  total_micro_batches_ = layout.total_micro_batches;
  LayerMath::Kinds kinds;
  for (const RankChunk& chunk : layout.chunks)
    for (planner::LayerId layer : chunk.layers) {
      const LayerKind kind = layer_kind(config_.model, layer);
      kinds.block |= is_block(kind);
      kinds.head |= has_loss(kind);
      kinds.mtp |= kind == LayerKind::kMtpBlock;
    }
  ASSIGN_OR_RETURN(math_,
                   LayerMath::make(backend_, config_.model, config_.micro_batch_size, kinds));

  place_layers(plan, layout);
  RETURN_IF_ERROR(make_room(layout));
  int64_t again = 0;
  for (const auto& chunk : chunks_)
    for (const LayerPlace& place : chunk) again = std::max(again, place.again_size);
  ASSIGN_OR_RETURN(again_, backend_.allocate(DType::kFloat32, again));
  ASSIGN_OR_RETURN(tokens_, backend_.allocate(DType::kInt32, math_->rows()));
  ASSIGN_OR_RETURN(targets_, backend_.allocate(DType::kInt32, math_->rows()));
  ASSIGN_OR_RETURN(row_loss_, backend_.allocate(DType::kFloat64, math_->rows()));
  ASSIGN_OR_RETURN(status_, backend_.allocate(DType::kInt64, 1));
  host_tokens_.resize(static_cast<size_t>(math_->rows()));
  host_row_loss_.resize(static_cast<size_t>(math_->rows()));
  touched_.assign(static_cast<size_t>(num_layers(config_.model)), false);
  wgrad_touched_ = head_touched_ = touched_;
  return {};
}

void ChunkExecutor::place_layers(const planner::Plan& plan, const RankLayout& layout) {
  split_backward_ = layout.split_backward;
  chunks_.clear();
  region_size_ = workspace_size_ = 0;
  for (const RankChunk& chunk : layout.chunks) {
    std::vector<LayerPlace> places;
    int64_t offset = 0, waiting = 0;
    for (planner::LayerId layer : chunk.layers) {
      LayerPlace place;
      place.layer = layer;
      place.kind = layer_kind(config_.model, layer);
      place.depth = mtp_depth(config_.model, layer);
      // Embedding and head keep next to nothing; only blocks are worth computing twice.
      if (is_block(place.kind)) place.recompute = plan.recompute[static_cast<size_t>(layer)];
      place.out_offset = offset;
      if (!has_loss(place.kind)) offset += math_->activation_size();
      place.saved_offset = offset;
      place.saved_size = math_->saved_size(layer, place.recompute);
      offset += place.saved_size;
      place.again_offset = waiting;
      place.again_size = math_->again_size(layer, place.recompute);
      waiting += place.again_size;
      place.kept_offset = waiting;
      if (is_block(place.kind) && split_backward_) waiting += kept_size(place);
      places.push_back(place);
    }
    region_size_ = std::max(region_size_, offset);
    workspace_size_ = std::max(workspace_size_, waiting);
    chunks_.push_back(std::move(places));
  }
}

// Slots and workspaces stay for the next schedule; only what it needs beyond them is new.
Status ChunkExecutor::make_room(const RankLayout& layout) {
  const auto slots = static_cast<size_t>(std::max(1, layout.slots));
  while (slots_.size() < slots) {
    Slot slot;
    ASSIGN_OR_RETURN(slot.input, backend_.allocate(DType::kFloat32, math_->activation_size()));
    ASSIGN_OR_RETURN(slot.gradient, backend_.allocate(DType::kFloat32, math_->activation_size()));
    ASSIGN_OR_RETURN(slot.region, backend_.allocate(DType::kFloat32, region_size_));
    slots_.push_back(slot);
  }
  workspaces_.resize(std::max(workspaces_.size(), static_cast<size_t>(layout.workspaces)));
  for (Tensor& tensor : workspaces_) {
    if (tensor.size() >= workspace_size_ && tensor.valid()) continue;
    ASSIGN_OR_RETURN(tensor, backend_.allocate(DType::kFloat32, workspace_size_));
  }
  return {};
}

Status ChunkExecutor::change_schedule(const planner::Plan& plan, const RankLayout& layout) {
  place_layers(plan, layout);
  return make_room(layout);
}

Status ChunkExecutor::allocate_sink() {
  const bool exact = config_.numerics == planner::Numerics::kExact;
  Tensor scratch;
  if (exact) {
    ASSIGN_OR_RETURN(scratch, backend_.allocate(DType::kFloat32, math_->largest_gradient()));
  }
  sink_ = std::make_unique<GradientSink>(backend_, config_.numerics, scratch, status_);
  const auto runs = [&](const auto& wanted) {
    return std::any_of(chunks_.begin(), chunks_.end(), [&](const auto& chunk) {
      return std::any_of(chunk.begin(), chunk.end(),
                         [&](const LayerPlace& place) { return wanted(place.kind); });
    });
  };
  const auto is_embedding = [](LayerKind kind) { return kind == LayerKind::kEmbedding; };
  // fp32 sums depend on their order: with both ends here, the shares stay apart until the end, as
  // they do on two ranks.
  if (!exact && config_.model.tied_head && runs(is_embedding) && runs(has_loss)) {
    ASSIGN_OR_RETURN(tied_gradient_,
                     backend_.allocate(DType::kFloat32, store_.layer(0).gradients.size()));
  }
  return {};
}

void ChunkExecutor::begin_step(int accumulation_scale, const GlobalBatch& batch) {
  const int depths = config_.model.mtp_num_layers;
  // Every token row of the embedding and the head's share are addends of their own, once more for
  // each depth.
  const int64_t addends = total_micro_batches_ * (math_->rows() + 1) * (1 + depths);
  sink_->set_fold({accumulation_scale, 62 - bits_for(addends)});
  loss_scale_.assign(1, static_cast<float>(1.0 / static_cast<double>(batch.valid_tokens())));
  for (int depth = 1; depth <= depths; ++depth) {
    const int64_t valid = batch.valid_tokens(depth);
    const double scale = config_.mtp_loss_scaling_factor / depths;
    loss_scale_.push_back(valid > 0 ? static_cast<float>(scale / static_cast<double>(valid))
                                    : 0.0f);
  }
  backend_.fill_zero(status_);
  std::fill(touched_.begin(), touched_.end(), false);
  std::fill(wgrad_touched_.begin(), wgrad_touched_.end(), false);
  std::fill(head_touched_.begin(), head_touched_.end(), false);
  // The others are overwritten by their first micro-batch; the embedding only adds rows.
  if (store_.holds(0)) {
    backend_.fill_zero(store_.layer(0).gradients);
    touched_[0] = true;
  }
  // Shared with the losses of MTP, which may be all that this rank does with it.
  const planner::LayerId head = head_layer(config_.model);
  if (depths > 0 && store_.holds(head)) {
    backend_.fill_zero(store_.layer(head).gradients);
    touched_[static_cast<size_t>(head)] = head_touched_[static_cast<size_t>(head)] = true;
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
  return workspaces_[static_cast<size_t>(workspace)].slice(place.kept_offset, kept_size(place));
}

int64_t ChunkExecutor::kept_size(const LayerPlace& place) const {
  return place.kind == LayerKind::kMtpBlock ? math_->mtp_kept_size() : math_->block_kept_size();
}

Tensor ChunkExecutor::input_of(int chunk, size_t index, int slot) const {
  const auto& places = chunks_[static_cast<size_t>(chunk)];
  while (index > 0 && has_loss(places[index - 1].kind)) --index;
  return index == 0 ? input(slot) : out_of(places[index - 1], slot);
}

Tensor ChunkExecutor::output(int chunk, int slot) const {
  return input_of(chunk, chunks_[static_cast<size_t>(chunk)].size(), slot);
}

void ChunkExecutor::turn_forward(int chunk, int from, int to) {
  // A chunk that hands on what it got may already have it there.
  const auto& places = chunks_[static_cast<size_t>(chunk)];
  const bool same = std::all_of(places.begin(), places.end(),
                                [](const LayerPlace& place) { return has_loss(place.kind); });
  if (from == to && same) return;
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
    const Tensor weights = store_.layer(place.layer).weights;
    if (place.depth > 0 && !train) break;
    const bool block = place.kind == LayerKind::kBlock || place.kind == LayerKind::kMtpBlock;
    LayerMath::GateTime gate;
    LayerMath::GateTime* const timed = profiler != nullptr && block ? &gate : nullptr;
    switch (place.kind) {
      case LayerKind::kEmbedding:
        upload_tokens(batch, first_sample, 0);
        math_->embedding_forward(weights, tokens_, out_of(place, slot));
        break;
      case LayerKind::kBlock:
        math_->block_forward(weights, x, out_of(place, slot), saved_of(place, slot, -1), timed);
        break;
      case LayerKind::kMtpBlock:
        math_->mtp_forward(weights, x, tokens_ahead(place, batch, first_sample),
                           out_of(place, slot), saved_of(place, slot, -1), timed);
        break;
      case LayerKind::kHead:
      case LayerKind::kMtpLoss:
        head_forward(place, x, slot, batch, first_sample, train, sample_loss);
        break;
    }
    if (timed != nullptr)
      profiler->note_selective(place.layer, backend_.seconds_between(gate.begun, gate.ended));
    if (profiler != nullptr)
      profiler->end_layer(place.layer, StepProfiler::Part::kForward,
                          backend_.seconds_between(begun, backend_.record_event()));
  }
}

void ChunkExecutor::head_forward(const LayerPlace& place, Tensor x, int slot,
                                 const GlobalBatch& batch, int64_t first_sample, bool train,
                                 std::span<double> sample_loss) {
  batch.copy_targets(first_sample, host_tokens_, place.depth);
  backend_.upload(targets_, std::span<const int32_t>(host_tokens_));
  // A shared matrix's gradient was emptied by begin_step().
  const bool first =
      train && first_touch(head_touched_, head_layer(config_.model)) && !config_.model.tied_head;
  math_->head_forward(store_.layer(place.layer).weights, head_matrix(), x, targets_,
                      saved_of(place, slot, -1).kept, row_loss_,
                      loss_scale_.empty() ? 1.0f : loss_scale_[static_cast<size_t>(place.depth)],
                      train, head_matrix_gradient(), sink_.get(), first);
  backend_.download(row_loss_, std::span<double>(host_row_loss_));
  const int64_t length = config_.model.sequence;
  for (int64_t i = 0; i < config_.micro_batch_size && first_sample + i < batch.samples(); ++i) {
    double sum = 0;  // rows in order
    for (int64_t row = i * length; row < (i + 1) * length; ++row)
      sum += host_row_loss_[static_cast<size_t>(row)];
    sample_loss[static_cast<size_t>(place.depth * batch.samples() + first_sample + i)] = sum;
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
  if (place.kind == LayerKind::kMtpBlock)
    math_->mtp_recompute(store_.layer(place.layer).weights, saved);
  else
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
    // Where the weight gradients begin; nothing: they are not apart, or there are none.
    Event between{-1};
    switch (place.kind) {
      case LayerKind::kEmbedding:
        embedding_backward(batch, first_sample, grad);
        break;
      case LayerKind::kBlock:
        if (split_backward_)
          math_->block_backward_input(layer.weights, x, saved, grad,
                                      kept_of(place, action.workspace), layer.gradients, *sink_,
                                      first);
        else
          math_->block_backward(layer.weights, x, saved, grad, layer.gradients, *sink_, first,
                                &between);
        break;
      case LayerKind::kMtpBlock: {
        const LayerMath::MtpTokens ahead = tokens_ahead(place, batch, first_sample);
        if (split_backward_)
          math_->mtp_backward_input(layer.weights, x, ahead, saved, grad,
                                    kept_of(place, action.workspace), layer.gradients, *sink_,
                                    first);
        else
          math_->mtp_backward(layer.weights, x, ahead, saved, grad, layer.gradients, *sink_, first,
                              &between);
        break;
      }
      case LayerKind::kHead:
      case LayerKind::kMtpLoss:
        if (place.layer == num_layers(config_.model) - 1) backend_.fill_zero(grad);
        math_->head_backward(layer.weights, x, saved.kept, grad, layer.gradients, *sink_, first);
        break;
    }
    if (profiler == nullptr) continue;
    const Event ended = backend_.record_event();
    if (place.kind == LayerKind::kEmbedding) between = begun;  // nothing but weight gradients
    if (between.seconds < 0) between = ended;
    profiler->end_layer(place.layer, StepProfiler::Part::kBackward,
                        backend_.seconds_between(begun, between));
    if (!split_backward_)
      profiler->end_layer(place.layer, StepProfiler::Part::kWgrad,
                          backend_.seconds_between(between, ended));
  }
}

void ChunkExecutor::wgrad(const RankAction& action, const GlobalBatch& batch, int64_t first_sample,
                          StepProfiler* profiler) {
  const int chunk = action.action.chunk, slot = action.action.slot;
  const auto& places = chunks_[static_cast<size_t>(chunk)];
  for (size_t i = places.size(); i-- > 0;) {
    const LayerPlace& place = places[i];
    if (has_loss(place.kind)) continue;
    StoredLayer& layer = store_.layer(place.layer);
    const Event begun = backend_.record_event();
    const Tensor x = input_of(chunk, i, slot);
    const SavedTensors saved = saved_of(place, slot, action.workspace);
    if (place.kind == LayerKind::kEmbedding)
      embedding_backward(batch, first_sample, gradient(slot));
    else if (place.kind == LayerKind::kMtpBlock)
      math_->mtp_backward_weight(layer.weights, x, tokens_ahead(place, batch, first_sample), saved,
                                 kept_of(place, action.workspace), layer.gradients, *sink_,
                                 first_touch(wgrad_touched_, place.layer));
    else
      math_->block_backward_weight(layer.weights, x, saved, kept_of(place, action.workspace),
                                   layer.gradients, *sink_,
                                   first_touch(wgrad_touched_, place.layer));
    if (profiler != nullptr)
      profiler->end_layer(place.layer, StepProfiler::Part::kWgrad,
                          backend_.seconds_between(begun, backend_.record_event()));
  }
}

void ChunkExecutor::embedding_backward(const GlobalBatch& batch, int64_t first_sample,
                                       Tensor grad) {
  upload_tokens(batch, first_sample, 0);
  math_->embedding_backward(tokens_, grad, store_.layer(0).gradients, *sink_);
}

void ChunkExecutor::upload_tokens(const GlobalBatch& batch, int64_t first_sample, int depth) {
  batch.copy_inputs(first_sample, host_tokens_, depth);
  backend_.upload(tokens_, std::span<const int32_t>(host_tokens_));
}

LayerMath::MtpTokens ChunkExecutor::tokens_ahead(const LayerPlace& place, const GlobalBatch& batch,
                                                 int64_t first_sample) {
  upload_tokens(batch, first_sample, place.depth);
  StoredLayer& embedding = store_.layer(0);
  return {tokens_, embedding.weights, embedding.gradients};
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

ChunkExecutor::LayerNeeds ChunkExecutor::needs_of(planner::LayerId layer) const {
  constexpr int64_t kFloat = 4;
  LayerNeeds needs;
  const LayerKind kind = layer_kind(config_.model, layer);
  needs.activation_bytes =
      ((has_loss(kind) ? 0 : math_->activation_size()) + math_->saved_size(layer)) * kFloat;
  needs.working_bytes = math_->scratch_size(layer) * kFloat;
  if (config_.numerics == planner::Numerics::kExact)
    needs.gradient_scratch_bytes = math_->largest_gradient_of(layer) * kFloat;
  if (!is_block(kind)) return needs;
  needs.selective_bytes = math_->again_size(layer, Recompute::kSelective) * kFloat;
  needs.kept_bytes =
      (kind == LayerKind::kMtpBlock ? math_->mtp_kept_size() : math_->block_kept_size()) * kFloat;
  return needs;
}

int64_t ChunkExecutor::hop_bytes() const {
  return math_->activation_size() * dtype_bytes(DType::kFloat32);
}

}  // namespace flextrain::trainer
