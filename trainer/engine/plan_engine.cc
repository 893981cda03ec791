// SPDX-License-Identifier: MIT
#include "trainer/engine/plan_engine.h"

#include <algorithm>
#include <cmath>

#include "trainer/engine/learning_rate.h"
#include "trainer/engine/profile_gather.h"

namespace flextrain::trainer {

using planner::ActionKind;

Result<std::unique_ptr<Engine>> make_engine(const TrainConfig& config, const planner::Plan& plan,
                                            Communicator& world, std::unique_ptr<Backend> backend) {
  return PlanEngine::make(config, plan, world, std::move(backend));
}

Result<std::unique_ptr<Engine>> PlanEngine::make(const TrainConfig& config,
                                                 const planner::Plan& plan, Communicator& world,
                                                 std::unique_ptr<Backend> backend) {
  if (config.model.vocab <= 0)
    return invalid_argument("model.vocab is {}; the tokeniser's size must be filled in first",
                            config.model.vocab);
  if (world.size() != planner::num_ranks(plan))
    return invalid_argument("the Plan has {} ranks, but {} were launched", planner::num_ranks(plan),
                            world.size());
  std::unique_ptr<PlanEngine> engine(new PlanEngine(config, plan, world));
  engine->backend_ = std::move(backend);
  RETURN_IF_ERROR(engine->open());
  return std::unique_ptr<Engine>(std::move(engine));
}

Status PlanEngine::open() {
  ASSIGN_OR_RETURN(layout_, make_rank_layout(config_, plan_, world_.rank()));
  if (backend_ == nullptr) {
    ASSIGN_OR_RETURN(backend_, make_cpu_backend());
  }
  ASSIGN_OR_RETURN(store_, LayerStore::make(*backend_, config_, layout_.held));
  ASSIGN_OR_RETURN(executor_, ChunkExecutor::make(*backend_, config_, plan_, layout_, store_));
  ASSIGN_OR_RETURN(reducer_, GradientReducer::make(*backend_, world_, store_.layers()));
  ASSIGN_OR_RETURN(norm_, backend_->allocate(DType::kFloat64, 1));
  make_profiler();
  auto slots = static_cast<size_t>(losses());
  for (int layer = 0; layer < num_layers(config_.model); ++layer) {
    norm_begin_.push_back(slots);
    slots += layer_parameters(config_.model, layer).size();
  }
  slots_.resize(slots);
  return {};
}

void PlanEngine::make_profiler() {
  // What a slot has room for is the planner's business too: predict() (planner/predict.cc).
  std::vector<ChunkBytes> chunks;
  for (const RankChunk& chunk : layout_.chunks) {
    ChunkBytes& bytes = chunks.emplace_back();
    bytes.slot = 2 * executor_->hop_bytes();
    for (const planner::LayerId layer : chunk.layers) {
      const ChunkExecutor::LayerNeeds needs = executor_->needs_of(layer);
      int64_t again = 0;
      if (plan_.recompute[static_cast<size_t>(layer)] == planner::Recompute::kSelective)
        again = needs.selective_bytes;
      if (plan_.recompute[static_cast<size_t>(layer)] == planner::Recompute::kFull)
        again = needs.activation_bytes - std::min(needs.activation_bytes, executor_->hop_bytes());
      bytes.slot += needs.activation_bytes - again;
      bytes.workspace += again + (layout_.split_backward ? needs.kept_bytes : 0);
    }
  }
  action_memory_ = action_memory(layout_, chunks, static_bytes());
  profiler_ = std::make_unique<StepProfiler>(*backend_, num_layers(config_.model),
                                             layout_.actions.size() + 2, config_.slow_layer,
                                             config_.slow_factor, config_.layer_seconds);
}

Status PlanEngine::change_schedule(const planner::Plan& plan) {
  if (planner::num_ranks(plan) != world_.size())
    return invalid_argument("the Plan has {} ranks, this run has {}", planner::num_ranks(plan),
                            world_.size());
  ASSIGN_OR_RETURN(RankLayout layout, make_rank_layout(config_, plan, world_.rank()));
  const bool same = plan.recompute == plan_.recompute && plan.chunk_order == plan_.chunk_order &&
                    layout.micro_batches == layout_.micro_batches &&
                    layout.first_micro_batch == layout_.first_micro_batch &&
                    std::equal(layout.chunks.begin(), layout.chunks.end(), layout_.chunks.begin(),
                               layout_.chunks.end(), [](const RankChunk& a, const RankChunk& b) {
                                 return a.layers == b.layers && a.position == b.position &&
                                        a.previous_rank == b.previous_rank &&
                                        a.next_rank == b.next_rank;
                               });
  if (!same)
    return invalid_argument(
        "rank {}: a schedule can be changed while training, the placement and the recomputation "
        "cannot",
        world_.rank());
  RETURN_IF_ERROR(executor_->change_schedule(plan, layout));
  layout_ = std::move(layout);
  plan_ = plan;
  make_profiler();
  return {};
}

Status PlanEngine::load_batch(GlobalBatch& batch, const BatchSource& data, bool evaluation,
                              int64_t first, int64_t count) {
  if (backend_->holds_values()) return batch.load(data, evaluation, first, count);
  batch.set_size(count);
  return {};
}

Result<StepResult> PlanEngine::train_step(int64_t step, int64_t consumed_samples,
                                          const BatchSource& data, bool flag, bool profile) {
  profiler_->begin_step(profile, step + 1 >= config_.slow_from_step);
  RETURN_IF_ERROR(load_batch(batch_, data, false, consumed_samples, config_.global_batch));
  StepResult result;
  ASSIGN_OR_RETURN(result.any_flag, compute_gradients(step, flag));
  RETURN_IF_ERROR(reduce_gradients());
  RETURN_IF_ERROR(sum_slots());

  double squares = 0;
  for (auto it = slots_.begin() + losses(); it != slots_.end(); ++it) squares += *it;
  bool finite = true;
  for (int depth = 0; depth <= config_.model.mtp_num_layers; ++depth) {
    const auto begin = slots_.begin() + int64_t{depth} * config_.global_batch;
    double loss = 0;
    for (auto it = begin; it != begin + config_.global_batch; ++it) loss += *it;
    const int64_t valid = batch_.valid_tokens(depth);
    if (valid > 0) loss /= static_cast<double>(valid);
    finite &= std::isfinite(loss);
    if (depth == 0)
      result.loss = loss;
    else
      result.mtp_losses.push_back(loss);
  }
  result.grad_norm = std::sqrt(squares);
  if (!finite || !std::isfinite(result.grad_norm))
    return failed_precondition(
        "step {}: loss {} and gradient norm {} are not finite; the weights are unchanged, resume "
        "from an earlier checkpoint with a lower learning rate",
        step, result.loss, result.grad_norm);
  update_weights(consumed_samples, result.grad_norm);
  RETURN_IF_ERROR(backend_->synchronize());
  result.learning_rate = learning_rate_at(config_, consumed_samples);
  result.tokens = batch_.samples() * config_.model.sequence;
  result.accumulation_scale = scale_;
  profiler_->end_step();
  return result;
}

Result<bool> PlanEngine::compute_gradients(int64_t step, bool flag) {
  for (;;) {
    executor_->begin_step(scale_, batch_);
    std::fill(slots_.begin(), slots_.end(), 0.0);
    ASSIGN_OR_RETURN(const int64_t worst, run_actions());
    int64_t agreed[] = {worst, flag ? 1 : 0};
    const double begun = profiler_->now();
    RETURN_IF_ERROR(world_.all_reduce(std::span<int64_t>(agreed), ReduceOp::kMax));
    profiler_->end_control(StepProfiler::Control::kScale, begun);
    if (agreed[0] == kFoldNotFinite)
      return failed_precondition(
          "step {}: a gradient is infinite or not a number; the weights are unchanged, resume from "
          "an earlier checkpoint with a lower learning rate",
          step);
    if (agreed[0] == 0) return agreed[1] != 0;
    // Too large for the fixed point: all ranks do the step again with a coarser unit. Finite floats
    // fit at some S, so this ends.
    scale_ -= 8;
    profiler_->restart_step();
  }
}

Result<int64_t> PlanEngine::run_actions() {
  for (size_t i = 0; i < layout_.actions.size(); ++i)
    RETURN_IF_ERROR(run_action(layout_.actions[i], action_memory_[i]));
  return executor_->finish_gradients();
}

Status PlanEngine::run_action(const RankAction& resolved, const ActionMemory& memory) {
  const planner::Action& a = resolved.action;
  const double begun = profiler_->now();
  const int64_t first_sample =
      (layout_.first_micro_batch + a.micro_batch) * config_.micro_batch_size;
  Status status;
  switch (a.kind) {
    case ActionKind::kForward:
      if (resolved.turn_slot >= 0) executor_->turn_forward(a.chunk - 1, resolved.turn_slot, a.slot);
      executor_->forward(a.chunk, a.slot, batch_, first_sample, true, slots_, profiler_.get());
      break;
    case ActionKind::kBackward:
      executor_->backward(resolved, batch_, first_sample, profiler_.get());
      if (resolved.turn_slot >= 0) executor_->turn_backward(a.slot, resolved.turn_slot);
      break;
    case ActionKind::kWgrad:
      executor_->wgrad(resolved, batch_, first_sample, profiler_.get());
      break;
    case ActionKind::kRecompute:
      executor_->recompute(resolved, profiler_.get());
      break;
    case ActionKind::kSendForward:
      status = world_.send(backend_->communication_f32(executor_->output(a.chunk, a.slot)),
                           resolved.peer_rank, resolved.tag);
      break;
    case ActionKind::kRecvForward:
      status = world_.recv(backend_->communication_f32(executor_->input(a.slot)),
                           resolved.peer_rank, resolved.tag);
      break;
    case ActionKind::kSendBackward:
      status = world_.send(backend_->communication_f32(executor_->gradient(a.slot)),
                           resolved.peer_rank, resolved.tag);
      break;
    case ActionKind::kRecvBackward:
      status = world_.recv(backend_->communication_f32(executor_->gradient(a.slot)),
                           resolved.peer_rank, resolved.tag);
      break;
    case ActionKind::kReduce:  // all layers at once, after all ranks agreed on the scale
    case ActionKind::kStep:
      return {};
  }
  profiler_->end_action(
      a, static_cast<int>(layout_.chunks[static_cast<size_t>(a.chunk)].layers.size()), begun,
      memory);
  const bool sends = a.kind == ActionKind::kSendForward || a.kind == ActionKind::kSendBackward;
  if (resolved.peer_rank >= 0 && resolved.peer_rank != world_.rank()) {
    profiler_->end_message(sends ? world_.rank() : resolved.peer_rank,
                           sends ? resolved.peer_rank : world_.rank(), resolved.tag, begun);
  }
  if (status.ok()) return status;
  return status.with_context(fmt::format("{} of micro-batch {} with rank {}",
                                         sends ? "send" : "receive", a.micro_batch,
                                         resolved.peer_rank));
}

Status PlanEngine::reduce_gradients() {
  const double begun = profiler_->now();
  RETURN_IF_ERROR(reducer_.reduce(store_.layers()));
  profiler_->end_action({ActionKind::kReduce, 0, 0, -1, 0},
                        static_cast<int>(store_.layers().size()), begun, all_free());
  return {};
}

Status PlanEngine::sum_slots() {
  double begun = profiler_->now();
  // One rank fills each slot, the others add zero: exact whatever the order.
  for (StoredLayer& layer : store_.layers()) {
    if (!layer.held.saves) continue;
    const size_t begin = norm_begin_[static_cast<size_t>(layer.held.layer)];
    for (size_t i = 0; i < layer.parameters.size(); ++i) {
      const Parameter& p = layer.parameters[i];
      backend_->sum_of_squares(layer.gradients.slice(p.offset, p.size), scale_, norm_);
      backend_->download(norm_, std::span<double>(&slots_[begin + i], 1));
    }
  }
  RETURN_IF_ERROR(backend_->synchronize());
  profiler_->end_norms(begun);
  begun = profiler_->now();
  RETURN_IF_ERROR(world_.all_reduce(std::span<double>(slots_), ReduceOp::kSum));
  profiler_->end_control(StepProfiler::Control::kLoss, begun);
  return {};
}

void PlanEngine::update_weights(int64_t consumed_samples, double grad_norm) {
  const double begun = profiler_->now();
  AdamParams params = adam_params_at(config_, consumed_samples);
  const double clip = config_.optimizer.clip_norm;
  params.grad_scale = clip > 0 && grad_norm > clip ? clip / grad_norm : 1.0;
  if (config_.numerics == planner::Numerics::kExact)
    params.grad_scale = std::ldexp(params.grad_scale, -scale_);
  for (StoredLayer& layer : store_.layers())
    for (const Parameter& p : layer.parameters) {
      params.weight_decay = p.decay ? static_cast<float>(config_.optimizer.weight_decay) : 0.0f;
      backend_->adamw(layer.weights.slice(p.offset, p.size),
                      layer.first_moment.slice(p.offset, p.size),
                      layer.second_moment.slice(p.offset, p.size),
                      layer.gradients.slice(p.offset, p.size), params);
    }
  profiler_->end_action({ActionKind::kStep, 0, 0, -1, 0}, static_cast<int>(store_.layers().size()),
                        begun, all_free());
}

Result<double> PlanEngine::evaluate(const BatchSource& data, int sequences) {
  if (sequences < 1)
    return invalid_argument("evaluation needs at least one sequence, not {}", sequences);
  RETURN_IF_ERROR(load_batch(eval_batch_, data, true, 0, sequences));
  eval_loss_.assign(static_cast<size_t>(sequences), 0.0);
  const int64_t micro_batches =
      (sequences + config_.micro_batch_size - 1) / config_.micro_batch_size;
  // The pipelines take turns.
  for (int64_t m = layout_.position.pipeline; m < micro_batches; m += layout_.pipelines)
    RETURN_IF_ERROR(evaluate_micro_batch(m));
  RETURN_IF_ERROR(backend_->synchronize());
  RETURN_IF_ERROR(world_.all_reduce(std::span<double>(eval_loss_), ReduceOp::kSum));
  double loss = 0;
  for (double sample : eval_loss_) loss += sample;
  return loss / static_cast<double>(eval_batch_.valid_tokens());
}

Status PlanEngine::evaluate_micro_batch(int64_t index) {
  for (size_t c = 0; c < layout_.chunks.size(); ++c) {
    const RankChunk& chunk = layout_.chunks[c];
    if (chunk.position > layout_.head_position) continue;
    if (chunk.previous_rank == world_.rank())
      executor_->turn_forward(static_cast<int>(c) - 1, 0, 0);
    else if (chunk.previous_rank >= 0)
      RETURN_IF_ERROR(world_.recv(backend_->communication_f32(executor_->input(0)),
                                  chunk.previous_rank,
                                  message_tag(index, chunk.position - 1, false)));
    executor_->forward(static_cast<int>(c), 0, eval_batch_, index * config_.micro_batch_size, false,
                       eval_loss_, nullptr);
    if (chunk.position < layout_.head_position && chunk.next_rank != world_.rank())
      RETURN_IF_ERROR(
          world_.send(backend_->communication_f32(executor_->output(static_cast<int>(c), 0)),
                      chunk.next_rank, message_tag(index, chunk.position, false)));
  }
  return {};
}

std::vector<planner::LayerId> PlanEngine::layers_to_save() const {
  std::vector<planner::LayerId> layers;
  for (const HeldLayer& held : layout_.held)
    if (held.saves) layers.push_back(held.layer);
  return layers;
}

std::vector<planner::LayerId> PlanEngine::layers_held() const {
  std::vector<planner::LayerId> layers;
  for (const HeldLayer& held : layout_.held) layers.push_back(held.layer);
  return layers;
}

Result<planner::StepProfile> PlanEngine::profile() {
  planner::StepProfile mine;
  mine.layers.resize(static_cast<size_t>(num_layers(config_.model)));
  for (const HeldLayer& held : layout_.held) {
    if (!held.saves) continue;
    planner::LayerProfile& layer = mine.layers[static_cast<size_t>(held.layer)];
    const ChunkExecutor::LayerNeeds needs = executor_->needs_of(held.layer);
    layer.static_bytes = store_.static_bytes(held.layer);
    layer.optimizer_bytes = store_.optimizer_bytes(held.layer);
    layer.gradient_bytes = store_.gradient_bytes(held.layer);
    layer.activation_bytes = needs.activation_bytes;
    layer.selective_bytes = needs.selective_bytes;
    layer.kept_bytes = needs.kept_bytes;
    layer.working_bytes = needs.working_bytes;
    layer.gradient_scratch_bytes = needs.gradient_scratch_bytes;
  }
  mine.hop_bytes = executor_->hop_bytes();
  const planner::Pipeline& pipeline = plan_.pipelines[0];
  mine.pipeline_parallel = static_cast<int>(pipeline.stages.size());
  mine.data_parallel = layout_.pipelines;
  mine.virtual_stages = static_cast<int>(pipeline.stages[0].chunks.size());
  ASSIGN_OR_RETURN(planner::StepProfile profile,
                   gather_profile(profiler_->measured(), std::move(mine), world_));
  for (planner::LayerId layer = 0; layer < num_layers(config_.model); ++layer) {
    for (const planner::LayerId other : {0, head_layer(config_.model)}) {
      if (other < layer && uses_layer(config_.model, layer, other))
        profile.layers[static_cast<size_t>(layer)].needs_layer = other;
    }
  }
  return profile;
}

int64_t PlanEngine::static_bytes() const {
  int64_t bytes = 0;
  for (const HeldLayer& held : layout_.held) bytes += store_.static_bytes(held.layer);
  return bytes;
}

}  // namespace flextrain::trainer
