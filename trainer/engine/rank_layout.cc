// SPDX-License-Identifier: MIT
#include "trainer/engine/rank_layout.h"

#include <algorithm>
#include <map>
#include <set>

#include "planner/schedule.h"
#include "trainer/model/parameters.h"

namespace flextrain::trainer {
namespace {

using planner::ActionKind;
using planner::LayerId;
using planner::Pipeline;
using planner::Plan;
using planner::ScheduleShape;

Status check_config(const TrainConfig& config, const Plan& plan) {
  if (plan.num_transformer_layers != config.model.layers)
    return invalid_argument("the Plan is for {} layers, model.layers is {}",
                            plan.num_transformer_layers, config.model.layers);
  if (plan.num_mtp_heads != config.model.mtp_num_layers)
    return invalid_argument("the Plan is for {} MTP heads, model.mtp_num_layers is {}",
                            plan.num_mtp_heads, config.model.mtp_num_layers);
  if (plan.micro_batch_size != config.micro_batch_size)
    return invalid_argument(
        "the Plan has micro-batches of {} sequences, train.micro_batch_size is {}",
        plan.micro_batch_size, config.micro_batch_size);
  if (plan.numerics != config.numerics)
    return invalid_argument("the Plan's numerics class is {}, the configuration's is {}",
                            planner::numerics_name(plan.numerics),
                            planner::numerics_name(config.numerics));
  const int64_t sequences = int64_t{planner::total_micro_batches(plan)} * plan.micro_batch_size;
  if (sequences != config.global_batch)
    return invalid_argument("the Plan's micro-batches hold {} sequences, train.global_batch is {}",
                            sequences, config.global_batch);
  return {};
}

Status check_supported(const Plan& plan) {
  if (plan.context_parallel != 1 || plan.expert_parallel != 1 || plan.zero_stage != 0)
    return invalid_argument(
        "the Plan asks for context parallel {}, expert parallel {}, ZeRO stage {}; this engine "
        "executes 1, 1, 0",
        plan.context_parallel, plan.expert_parallel, plan.zero_stage);
  for (size_t p = 0; p < plan.pipelines.size(); ++p) {
    const Pipeline& pipeline = plan.pipelines[p];
    for (size_t s = 0; s < pipeline.stages.size(); ++s) {
      if (pipeline.stages[s].ranks.size() != 1)
        return invalid_argument(
            "stage {} of pipeline {} has {} ranks (tensor parallel); this engine executes tensor "
            "parallel 1, use a Plan with one rank per stage",
            s, p, pipeline.stages[s].ranks.size());
      if (pipeline.stages[s].chunks.size() != pipeline.stages[0].chunks.size())
        return invalid_argument("stages 0 and {} of pipeline {} have {} and {} chunks", s, p,
                                pipeline.stages[0].chunks.size(), pipeline.stages[s].chunks.size());
    }
    if (pipeline.stages.size() == 1 && pipeline.stages[0].chunks.size() > 1)
      return invalid_argument("pipeline {} has virtual stages but one stage only", p);
  }
  return {};
}

int rank_at(const Pipeline& pipeline, const ScheduleShape& shape, int position) {
  if (position < 0 || position > shape.last_position()) return -1;
  return pipeline.stages[static_cast<size_t>(shape.stage_at(position))].ranks[0].rank;
}

bool is_transfer(ActionKind kind) {
  return kind == ActionKind::kSendForward || kind == ActionKind::kRecvForward ||
         kind == ActionKind::kSendBackward || kind == ActionKind::kRecvBackward;
}

// The other side of a transfer: position, and the position that made what crosses.
struct Transfer {
  int other = 0, producer = 0;
  bool backward = false;
};
Transfer transfer_of(ActionKind kind, int position) {
  switch (kind) {
    case ActionKind::kSendForward:
      return {position + 1, position, false};
    case ActionKind::kRecvForward:
      return {position - 1, position - 1, false};
    case ActionKind::kSendBackward:
      return {position - 1, position, true};
    default:
      return {position + 1, position + 1, true};
  }
}

// Gives every micro-batch of a chunk a workspace from its Recompute, or its Backward where that is
// split, to the last action that reads it. Freed ones are taken again, the lowest first.
void assign_workspaces(RankLayout& layout) {
  using Key = std::pair<int, int>;  // chunk, micro-batch
  std::map<Key, int> held;
  std::set<int> open;
  for (RankAction& action : layout.actions) {
    const Key key{action.action.chunk, action.action.micro_batch};
    const ActionKind kind = action.action.kind;
    const bool backward = kind == ActionKind::kBackward;
    if (!backward && kind != ActionKind::kRecompute && kind != ActionKind::kWgrad) continue;
    const auto found = held.find(key);
    if (backward) action.recomputed = found != held.end();
    if (found != held.end()) {
      action.workspace = found->second;
    } else if (kind == ActionKind::kRecompute || layout.split_backward) {
      if (open.empty()) open.insert(layout.workspaces++);
      action.workspace = held[key] = *open.begin();
      open.erase(open.begin());
    }
    if (action.workspace >= 0 &&
        kind == (layout.split_backward ? ActionKind::kWgrad : ActionKind::kBackward)) {
      open.insert(action.workspace);
      held.erase(key);
    }
  }
}

// Tells Forward and Backward of a chunk after a turn which slot the chunk before it holds.
void find_turns(int rank, RankLayout& layout) {
  std::map<std::pair<int, int>, int> slots;  // of the Forwards: chunk, micro-batch
  for (RankAction& resolved : layout.actions) {
    const planner::Action& action = resolved.action;
    if (action.kind == ActionKind::kForward)
      slots[{action.chunk, action.micro_batch}] = action.slot;
    else if (action.kind != ActionKind::kBackward)
      continue;
    if (layout.chunks[static_cast<size_t>(action.chunk)].previous_rank == rank)
      resolved.turn_slot = slots.at({action.chunk - 1, action.micro_batch});
  }
}

Status resolve_actions(const Plan& plan, int rank, RankLayout& layout) {
  const Pipeline& pipeline = plan.pipelines[static_cast<size_t>(layout.position.pipeline)];
  ASSIGN_OR_RETURN(const ScheduleShape shape, planner::shape_of(plan, layout.position.pipeline));
  ASSIGN_OR_RETURN(const planner::Schedule schedule,
                   planner::schedule_of(plan, layout.position.pipeline));
  ASSIGN_OR_RETURN(const planner::ScheduleReport report,
                   planner::check_schedule(schedule, shape, planner::ActionCosts{}));
  (void)report;  // asked for its errors: unpaired sends, deadlocks, slots in use twice
  for (const planner::Action& action : schedule[static_cast<size_t>(layout.position.stage)]) {
    RankAction resolved;
    resolved.action = action;
    layout.slots = std::max(layout.slots, action.slot + 1);
    if (is_transfer(action.kind)) {
      const RankChunk& chunk = layout.chunks[static_cast<size_t>(action.chunk)];
      const Transfer transfer = transfer_of(action.kind, chunk.position);
      resolved.peer_rank = rank_at(pipeline, shape, transfer.other);
      resolved.tag = message_tag(action.micro_batch, transfer.producer, transfer.backward);
      if (resolved.peer_rank < 0)
        return invalid_argument(
            "{} of micro-batch {}, chunk {} on stage {} leads out of the pipeline",
            planner::action_kind_name(action.kind), action.micro_batch, action.chunk,
            layout.position.stage);
    }
    layout.actions.push_back(resolved);
  }
  for (const planner::StageActions& actions : schedule)
    layout.split_backward |= std::any_of(actions.begin(), actions.end(), [](const auto& action) {
      return action.kind == ActionKind::kWgrad;
    });
  assign_workspaces(layout);
  find_turns(rank, layout);
  return {};
}

// Ranks that hold `layer` in each pipeline, ascending. `saver` is the first pipeline's.
std::set<int> holders(const Plan& plan, LayerId layer, int& saver) {
  std::set<int> ranks;
  saver = -1;
  for (const Pipeline& pipeline : plan.pipelines)
    for (const planner::Stage& stage : pipeline.stages)
      for (const auto& chunk : stage.chunks)
        if (std::find(chunk.begin(), chunk.end(), layer) != chunk.end()) {
          if (saver < 0) saver = stage.ranks[0].rank;
          ranks.insert(stage.ranks[0].rank);
        }
  return ranks;
}

void find_held_layers(const ModelConfig& model, const Plan& plan, int rank, RankLayout& layout) {
  for (LayerId layer = 0; layer < num_layers(model); ++layer) {
    HeldLayer held;
    held.layer = layer;
    int saver = -1, unused = -1;
    std::set<int> ranks = holders(plan, layer, saver);
    for (LayerId user = layer + 1; user < num_layers(model); ++user)
      if (uses_layer(model, user, layer)) ranks.merge(holders(plan, user, unused));
    if (!ranks.contains(rank)) continue;
    held.saves = saver == rank;
    held.reduce_ranks.assign(ranks.begin(), ranks.end());
    layout.held.push_back(std::move(held));
  }
}

}  // namespace

int message_tag(int64_t micro_batch, int producer, bool backward) {
  // 1024 micro-batches are never in flight between one pair; MPI guarantees tags up to 32767 only,
  // Open MPI has 2^31 - 1.
  constexpr int64_t kInFlight = 1024;
  return (producer * static_cast<int>(kInFlight) + static_cast<int>(micro_batch % kInFlight)) * 2 +
         (backward ? 1 : 0);
}

Result<RankLayout> make_rank_layout(const TrainConfig& config, const Plan& plan, int rank) {
  RETURN_IF_ERROR(planner::validate_plan(plan));
  RETURN_IF_ERROR(check_supported(plan));
  RETURN_IF_ERROR(check_config(config, plan));
  RankLayout layout;
  ASSIGN_OR_RETURN(layout.position, planner::find_rank(plan, rank));
  layout.pipelines = static_cast<int>(plan.pipelines.size());
  layout.total_micro_batches = planner::total_micro_batches(plan);
  for (int p = 0; p < layout.position.pipeline; ++p)
    layout.first_micro_batch += plan.pipelines[static_cast<size_t>(p)].micro_batches;
  const Pipeline& pipeline = plan.pipelines[static_cast<size_t>(layout.position.pipeline)];
  layout.micro_batches = pipeline.micro_batches;
  const planner::Stage& stage = pipeline.stages[static_cast<size_t>(layout.position.stage)];
  ASSIGN_OR_RETURN(const ScheduleShape shape, planner::shape_of(plan, layout.position.pipeline));
  for (size_t v = 0; v < stage.chunks.size(); ++v) {
    RankChunk chunk;
    for (LayerId layer : stage.chunks[v])
      if (layer != planner::kNoOp) chunk.layers.push_back(layer);
    chunk.position = shape.position(layout.position.stage, static_cast<int>(v));
    chunk.previous_rank = rank_at(pipeline, shape, chunk.position - 1);
    chunk.next_rank = rank_at(pipeline, shape, chunk.position + 1);
    layout.chunks.push_back(std::move(chunk));
  }
  for (int at = 0; at <= shape.last_position(); ++at) {
    const auto& layers = pipeline.stages[static_cast<size_t>(shape.stage_at(at))]
                             .chunks[static_cast<size_t>(shape.chunk_at(at))];
    if (std::find(layers.begin(), layers.end(), head_layer(config.model)) != layers.end())
      layout.head_position = at;
  }
  RETURN_IF_ERROR(resolve_actions(plan, rank, layout));
  find_held_layers(config.model, plan, rank, layout);
  return layout;
}

}  // namespace flextrain::trainer
