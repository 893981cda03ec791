// SPDX-License-Identifier: MIT
// Trains the toy model under a set of layouts in which every two values of any two of {schedule,
// pipeline degree, virtual stages, recomputation, MTP depths, data parallelism} meet at least once,
// and compares losses, norms and state with a run on one rank. Prints the table of
// docs/schedules.md and fails when one differs. Under mpirun -n 6; each layout takes the first
// ranks.
#include <array>
#include <cstdio>
#include <numeric>
#include <set>
#include <string>
#include <tuple>

#include "base/text.h"
#include "planner/plan_search.h"
#include "tests/trainer/engine/toy_run.h"

namespace flextrain::trainer {
namespace {

using planner::Recompute;

constexpr int kSteps = 2, kLayers = 5, kBatch = 6, kMostRanks = 6;
constexpr size_t kFactors = 6;
enum Factor : size_t { kSchedule, kStages, kVirtual, kRecompute, kMtp, kData };
using Row = std::array<int, kFactors>;  // the index of each factor's value

const char* const kSchedules[] = {"1f1b", "gpipe", "memory-min", "zb-1p", "v-shape", "searched"};
constexpr int kStageCounts[] = {2, 3};
constexpr int kVirtualStages[] = {1, 2};
constexpr Recompute kRecomputes[] = {Recompute::kNone, Recompute::kSelective, Recompute::kFull};
constexpr int kMtpDepths[] = {0, 1, 2};
constexpr int kDataParallel[] = {1, 2};
constexpr Row kCounts = {6, 2, 2, 3, 3, 2};

std::string schedule_of(const Row& row) { return kSchedules[row[kSchedule]]; }

// Every possible row; a V has two chunks.
std::vector<Row> all_rows() {
  std::vector<Row> rows;
  const int count = std::accumulate(kCounts.begin(), kCounts.end(), 1, std::multiplies<>());
  for (int index = 0; index < count; ++index) {
    Row row{};
    int rest = index;
    for (size_t factor = 0; factor < kFactors; ++factor) {
      row[factor] = rest % kCounts[factor];
      rest /= kCounts[factor];
    }
    if (schedule_of(row) == "v-shape" && kVirtualStages[row[kVirtual]] != 2) continue;
    rows.push_back(row);
  }
  return rows;
}

using Pair = std::tuple<size_t, int, size_t, int>;
std::set<Pair> pairs_of(const Row& row) {
  std::set<Pair> pairs;
  for (size_t a = 0; a < kFactors; ++a)
    for (size_t b = a + 1; b < kFactors; ++b) pairs.emplace(a, row[a], b, row[b]);
  return pairs;
}

// Greedy: always the row that meets most pairs which have not met.
std::vector<Row> covering_rows() {
  const std::vector<Row> rows = all_rows();
  std::set<Pair> open;
  for (const Row& row : rows) open.merge(pairs_of(row));
  std::vector<Row> chosen;
  while (!open.empty()) {
    size_t most = 0;
    const Row* best = nullptr;
    for (const Row& row : rows) {
      size_t gain = 0;
      for (const Pair& pair : pairs_of(row)) gain += open.count(pair);
      if (gain > most) most = gain, best = &row;
    }
    for (const Pair& pair : pairs_of(*best)) open.erase(pair);
    chosen.push_back(*best);
  }
  return chosen;
}

TrainConfig config_of(int mtp) {
  TrainConfig config = toy_config(kLayers, kBatch);
  config.model.mtp_num_layers = mtp;
  return config;
}

// Uneven made-up costs: a search has something to find; a cap of little over two micro-batches.
Result<planner::Plan> searched(const planner::Plan& plan) {
  planner::StepProfile profile;
  const int layers = planner::num_layers(plan);
  for (int layer = 0; layer < layers; ++layer) {
    planner::LayerProfile costs;
    costs.forward = 1.0 + 0.37 * (layer * 7 % 5);
    costs.backward = 2.0 + 0.61 * (layer * 3 % 4);
    costs.static_bytes = 1000;
    costs.activation_bytes = 100;
    profile.layers.push_back(costs);
  }
  profile.transfer_seconds = 0.1;
  planner::ScheduleWish wish;
  wish.max_expansions = 200;
  for (const planner::Stage& stage : plan.pipelines[0].stages) {
    int64_t held = 0;
    for (const auto& chunk : stage.chunks)
      for (const planner::LayerId layer : chunk) held += layer != planner::kNoOp;
    wish.memory_cap_bytes = std::max(wish.memory_cap_bytes, held * 1000 + held * 220);
  }
  ASSIGN_OR_RETURN(planner::PlannedSchedule made, planner::plan_schedule(profile, plan, wish));
  return std::move(made.plan);
}

Result<planner::Plan> plan_of(const Row& row, const TrainConfig& config) {
  planner::RegularLayout layout;
  layout.num_transformer_layers = config.model.layers;
  layout.num_mtp_heads = config.model.mtp_num_layers;
  layout.pipeline_parallel = kStageCounts[row[kStages]];
  layout.data_parallel = kDataParallel[row[kData]];
  layout.virtual_stages = kVirtualStages[row[kVirtual]];
  layout.global_batch = config.global_batch;
  layout.recompute = kRecomputes[row[kRecompute]];
  const bool search = schedule_of(row) == "searched";
  layout.schedule = search ? "1f1b" : schedule_of(row);
  ASSIGN_OR_RETURN(planner::Plan plan, planner::make_regular_plan(layout));
  return search ? searched(plan) : plan;
}

// Losses, norms and state of a whole run, as one hash on rank 0.
Result<uint64_t> run(const TrainConfig& config, const planner::Plan& plan, Communicator& world) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, make_engine(config, plan, world));
  RETURN_IF_ERROR(engine->initialize());
  const ToyText text(config.model.vocab, true);
  std::string printed;
  for (int step = 0; step < kSteps; ++step) {
    ASSIGN_OR_RETURN(
        const StepResult r,
        engine->train_step(step, int64_t{step} * config.global_batch, text, false, false));
    printed += format_hex_double(r.loss) + " " + format_hex_double(r.grad_norm);
    for (const double loss : r.mtp_losses) printed += " " + format_hex_double(loss);
  }
  ASSIGN_OR_RETURN(const double eval, engine->evaluate(text, 3));
  ASSIGN_OR_RETURN(const std::string state, gather_state(*engine, config, world));
  return fingerprint_bytes(printed + format_hex_double(eval) + state);
}

Result<planner::Plan> straight_plan(const TrainConfig& config) {
  planner::RegularLayout layout;
  layout.num_transformer_layers = config.model.layers;
  layout.num_mtp_heads = config.model.mtp_num_layers;
  layout.global_batch = config.global_batch;
  return planner::make_regular_plan(layout);
}

std::vector<int> first_ranks(int count) {
  std::vector<int> ranks(static_cast<size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

Result<bool> cover(Communicator& world) {
  if (world.size() != kMostRanks)
    return invalid_argument("start it on {} ranks, not {}", kMostRanks, world.size());
  const bool root = world.rank() == 0;
  std::array<uint64_t, std::size(kMtpDepths)> expected{};
  if (root) {
    ASSIGN_OR_RETURN(const auto alone, world.subgroup({0}, 1));
    for (size_t i = 0; i < expected.size(); ++i) {
      const TrainConfig config = config_of(kMtpDepths[i]);
      ASSIGN_OR_RETURN(const planner::Plan plan, straight_plan(config));
      ASSIGN_OR_RETURN(expected[i], run(config, plan, *alone));
    }
    std::printf(
        "| schedule | PP | virtual stages | recompute | MTP | DP | digest | one rank's |\n"
        "|---|---|---|---|---|---|---|---|\n");
  }
  bool equal = true;
  int token = 2;
  for (const Row& row : covering_rows()) {
    const TrainConfig config = config_of(kMtpDepths[row[kMtp]]);
    ASSIGN_OR_RETURN(const planner::Plan plan, plan_of(row, config));
    const int ranks = planner::num_ranks(plan);
    if (world.rank() < ranks) {
      ASSIGN_OR_RETURN(const auto group, world.subgroup(first_ranks(ranks), token));
      ASSIGN_OR_RETURN(const uint64_t digest, run(config, plan, *group));
      if (root) {
        const bool same = digest == expected[static_cast<size_t>(row[kMtp])];
        equal &= same;
        std::printf("%s\n",
                    fmt::format("| {} | {} | {} | {} | {} | {} | {:016x} | {} |", schedule_of(row),
                                kStageCounts[row[kStages]], kVirtualStages[row[kVirtual]],
                                planner::recompute_name(kRecomputes[row[kRecompute]]),
                                kMtpDepths[row[kMtp]], kDataParallel[row[kData]], digest,
                                same ? "equal" : "DIFFERS")
                        .c_str());
      }
    }
    ++token;
    RETURN_IF_ERROR(world.barrier());
  }
  return equal;
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
  const flextrain::Result<bool> equal = cover(**world);
  if (!equal.ok()) {
    std::fprintf(stderr, "%s\n", equal.status().to_string().c_str());
    abort_world(1);
  }
  world->reset();
  close_world();
  return *equal ? 0 : 1;
}
