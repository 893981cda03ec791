// SPDX-License-Identifier: MIT
// planner: HOW a job uses N GPUs. Pure: no I/O, no clock, knows neither Slurm nor MPI.
//
// A Plan says completely how one training run is laid out: which global layers each pipeline stage
// holds, which ranks form a stage, how the micro-batches are shared out, who reduces gradients with
// whom, and in which order each stage works. It is asymmetric from the first day (HexiScale): every
// pipeline has its own stages and every stage its own tensor-parallel group. The trainer executes
// Plans and nothing else; agent and controller pass them on as opaque, versioned JSON.
//
// Ranks are 0 … num_ranks-1 and dense. Which host and device a rank runs on is the Placement, which
// the agent makes; it is not part of the Plan.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace flextrain::planner {

// Global layer ids. With L transformer layers: 0 is the embedding, 1 … L are the transformer
// layers, L+1 is the head (final norm, LM head and loss). With D multi-token-prediction heads the
// head passes its input on and for d = 1 … D follow L+2d, the MTP block (projection of the hidden
// state and the embedded token d ahead, then a transformer layer), and L+2d+1, its embedding and
// cross-entropy: with two heads these stand last and third-last, where FlexTrain puts them. kNoOp
// has no weights and passes activations on.
using LayerId = int;
inline constexpr LayerId kNoOp = -1;

enum class Numerics { kExact, kFp32 };
std::string_view numerics_name(Numerics numerics);  // "exact", "fp32"
Result<Numerics> parse_numerics(std::string_view text);

// One rank of a stage's tensor-parallel group and its share of each split matrix, as the half-open
// range [shard_begin, shard_end) of `Stage::shard_units` equal units. Unequal shares are allowed.
struct StageRank {
  int rank = 0;
  int shard_begin = 0;
  int shard_end = 1;
};

struct Stage {
  std::vector<StageRank> ranks;  // the tensor-parallel group; size 1 without TP
  int shard_units = 1;           // what the ranges above are counted in
  std::string device_type;       // GRES type, "" = whatever the job has
  int leader = 0;                // rank that talks to the neighbour stages
  // chunks[v] = layer ids of virtual stage v held here, in execution order, No-Ops included. The
  // order of execution over the pipeline is the Plan's chunk_order.
  std::vector<std::vector<LayerId>> chunks;
};

// How chunk v of the stages follows in the order of execution: kLoop = chunk 0 of stage 0 … p-1,
// then chunk 1 of stage 0 … p-1; kV = odd chunks run the other way, from stage p-1 to 0, so that
// the turn stays on one stage and the first stage holds the last chunk of two.
enum class ChunkOrder { kLoop, kV };

// What of a block's saved tensors is computed again before its backward instead of being kept:
// nothing; the feed-forward's gate and up projections, the largest of them; everything but the
// input.
enum class Recompute : uint8_t { kNone, kSelective, kFull };
std::string_view recompute_name(Recompute recompute);  // "none", "selective", "full"
Result<Recompute> parse_recompute(std::string_view text);

struct Pipeline {
  std::vector<Stage> stages;
  int micro_batches =
      1;  // of the global batch, in order: pipeline 0 takes the first ones, and so on
};

// Ranks that hold (a shard of) the same layer and sum its gradients.
struct ReduceGroup {
  LayerId layer = 0;
  std::vector<int> ranks;
};

// One step of a stage's list; see planner/schedule.h.
enum class ActionKind {
  kForward,
  kBackward,
  kWgrad,
  kSendForward,
  kRecvForward,
  kSendBackward,
  kRecvBackward,
  kRecompute,
  kReduce,
  kStep,
};
struct Action {
  ActionKind kind = ActionKind::kForward;
  int micro_batch = 0;  // within the pipeline
  int chunk = 0;        // virtual stage index on this stage
  int peer = -1;  // stage index (within the pipeline) of the other side of a Send/Recv, else -1
  int slot = 0;   // activation slot that holds this micro-batch's saved tensors
  bool operator==(const Action&) const = default;
};

struct Plan {
  static constexpr int kVersion = 1;
  int version = kVersion;
  std::string id;  // content hash, see plan_id()
  Numerics numerics = Numerics::kExact;
  int num_transformer_layers = 0;  // L
  int num_mtp_heads = 0;           // D
  int micro_batch_size = 1;        // sequences; fixed for a run, the accumulation unit of `exact`
  std::vector<Pipeline> pipelines;
  std::vector<ReduceGroup> reduce_groups;                         // one per layer id, ascending
  std::vector<Recompute> recompute;                               // per layer id
  int context_parallel = 1, expert_parallel = 1, zero_stage = 0;  // 1, 1, 0 until built
  // A family of planner/schedule_family.h whose lists follow from the Plan alone ("1f1b", "gpipe",
  // "memory-min", "zb-1p", "v-shape"), or "explicit".
  std::string schedule = "1f1b";
  ChunkOrder chunk_order = ChunkOrder::kLoop;
  // Only for "explicit": explicit_actions[pipeline][stage] = that stage's list.
  std::vector<std::vector<std::vector<Action>>> explicit_actions;
};

// A regular DP × PP Plan (tensor parallel 1) with `virtual_stages` chunks per stage. Ranks are
// pipeline-major: rank = pipeline·pp + stage. Layers are placed by planner/placement.h with unit
// costs unless `layer_costs` (one relative time per layer id) is given. Schedule v-shape needs two
// virtual stages and sets chunk_order to kV.
// Errors: kInvalidArgument when global_batch is not dp·micro_batch_size·k, pp > L, virtual_stages ≥
// 2 with pp 1, or a value is not positive.
struct RegularLayout {
  int num_transformer_layers = 1;
  int num_mtp_heads = 0;
  int data_parallel = 1;
  int pipeline_parallel = 1;
  int virtual_stages = 1;
  int global_batch = 1;      // sequences per step over all pipelines
  int micro_batch_size = 1;  // sequences
  Numerics numerics = Numerics::kExact;
  std::string schedule = "1f1b";
  Recompute recompute = Recompute::kNone;  // of every transformer layer and MTP block
  std::vector<double> layer_costs;
  bool no_ops = true, empty_stages = false;  // as in PlacementRequest
};
Result<Plan> make_regular_plan(const RegularLayout& layout);

// Everything a trainer relies on: dense ranks, every layer exactly once per pipeline and in order,
// reduce groups complete, leader inside its group, shards covering [0, shard_units) without
// overlap, class `exact` only for equal shard counts and one device type. kInvalidArgument says
// what is off.
Status validate_plan(const Plan& plan);

int num_ranks(const Plan& plan);
// Layer ids are 0 … num_layers - 1: L + 2 + 2D.
int num_layers(int num_transformer_layers, int num_mtp_heads);
int num_layers(const Plan& plan);
// Whether a layer is a transformer layer or an MTP block: what recomputation is for.
bool is_block(const Plan& plan, LayerId layer);
int total_micro_batches(const Plan& plan);
// Where a rank sits; kNotFound for a rank the Plan does not have.
struct RankPosition {
  int pipeline = 0, stage = 0, index_in_group = 0;
};
Result<RankPosition> find_rank(const Plan& plan, int rank);
// "PP 4 x DP 2, 1f1b, 8 GPUs", for people.
std::string plan_summary(const Plan& plan);

// Versioned JSON both ways. plan_from_json validates. plan_id is a hash of the JSON without "id".
Json plan_to_json(const Plan& plan);
Result<Plan> plan_from_json(const Json& json);
std::string plan_id(const Plan& plan);

}  // namespace flextrain::planner
