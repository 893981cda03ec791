// SPDX-License-Identifier: MIT
// One rank of a small run. Prints what must be equal in every layout: the losses and norms as hex
// floats, the evaluation loss, the state's digest; on rank 0 only.
//
//   engine_run layers=5 pp=2 dp=1 v=1 schedule=1f1b numerics=exact begin=0 steps=4 batch=6 tied=0
//              recompute=0 padding=0 scale=44 mbs=1 mtp=0 load=FILE save=FILE
//
// split=1 takes every Backward of the schedule apart: its Wgrad comes two Forwards or Backwards
// later; split=2 puts a Recompute before it as well.
//
// second_pp=K adds a second pipeline of K stages, which takes a third of the micro-batches; the
// first one has pp stages.
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <string>

#include "base/file.h"
#include "base/text.h"
#include "planner/schedule.h"
#include "tests/trainer/engine/toy_run.h"

namespace flextrain::trainer {
namespace {

using Options = std::map<std::string, std::string>;

int number(const Options& options, const std::string& key) {
  return std::atoi(options.at(key).c_str());
}

Result<planner::Plan> regular_plan(const Options& options, const TrainConfig& config,
                                   const char* pp, int global_batch) {
  planner::RegularLayout layout;
  layout.num_transformer_layers = config.model.layers;
  layout.data_parallel = number(options, "dp");
  layout.pipeline_parallel = number(options, pp);
  layout.virtual_stages = number(options, "v");
  layout.global_batch = global_batch;
  layout.micro_batch_size = config.micro_batch_size;
  layout.numerics = config.numerics;
  layout.schedule = options.at("schedule");
  layout.num_mtp_heads = config.model.mtp_num_layers;
  layout.empty_stages = true;
  return planner::make_regular_plan(layout);
}

// Both Plans side by side: the second one's ranks follow the first one's.
void join_plans(planner::Plan& plan, const planner::Plan& second) {
  const int offset = planner::num_ranks(plan);
  for (planner::Pipeline pipeline : second.pipelines) {
    for (planner::Stage& stage : pipeline.stages) {
      stage.leader += offset;
      for (planner::StageRank& rank : stage.ranks) rank.rank += offset;
    }
    plan.pipelines.push_back(std::move(pipeline));
  }
  for (size_t i = 0; i < plan.reduce_groups.size(); ++i)
    for (int rank : second.reduce_groups[i].ranks)
      plan.reduce_groups[i].ranks.push_back(rank + offset);
  plan.id = planner::plan_id(plan);
}

// The schedule of every pipeline as explicit lists with Wgrad actions of their own, `delay`
// computations after their Backward.
Status split_schedule(planner::Plan& plan, size_t delay, bool recompute) {
  using planner::ActionKind;
  std::vector<std::vector<std::vector<planner::Action>>> lists;
  for (int p = 0; p < static_cast<int>(plan.pipelines.size()); ++p) {
    ASSIGN_OR_RETURN(planner::Schedule schedule, planner::schedule_of(plan, p));
    for (planner::StageActions& stage : schedule) {
      planner::StageActions split;
      std::deque<planner::Action> waiting;
      int next_slot = 0;
      std::map<std::pair<int, int>, int> slots;  // Wgrad keeps a slot longer: one for each
      for (planner::Action action : stage) {
        if (recompute && action.kind == ActionKind::kRecompute) continue;  // each gets one below
        const bool ends = action.kind == ActionKind::kReduce || action.kind == ActionKind::kStep;
        if (!ends) {
          const auto [at, fresh] = slots.try_emplace({action.chunk, action.micro_batch}, next_slot);
          if (fresh) ++next_slot;
          action.slot = at->second;
        }
        while (!waiting.empty() && (ends || waiting.size() > delay)) {
          split.push_back(waiting.front());
          waiting.pop_front();
        }
        if (recompute && action.kind == ActionKind::kBackward) {
          split.push_back(action);
          split.back().kind = ActionKind::kRecompute;
        }
        split.push_back(action);
        if (action.kind != ActionKind::kBackward) continue;
        waiting.push_back(action);
        waiting.back().kind = ActionKind::kWgrad;
      }
      stage = std::move(split);
    }
    lists.push_back(std::move(schedule));
  }
  plan.explicit_actions = std::move(lists);
  plan.schedule = "explicit";
  return {};
}

Result<planner::Plan> make_plan(const Options& options, const TrainConfig& config) {
  const bool two = options.contains("second_pp");
  const int share = two ? config.global_batch / 3 : 0;
  ASSIGN_OR_RETURN(planner::Plan plan,
                   regular_plan(options, config, "pp", config.global_batch - share));
  if (two) {
    ASSIGN_OR_RETURN(const planner::Plan second, regular_plan(options, config, "second_pp", share));
    join_plans(plan, second);
  }
  if (number(options, "recompute"))
    for (size_t layer = 0; layer < plan.recompute.size(); layer += 2)
      plan.recompute[layer] = planner::Recompute::kFull;
  const int split = number(options, "split");
  if (split > 0) RETURN_IF_ERROR(split_schedule(plan, 2, split > 1));
  return plan;
}

// No rank may hold more than its layers: 20 bytes per parameter (exact), 16 (fp32).
Status check_memory(const Engine& engine, const TrainConfig& config) {
  int64_t parameters = 0;
  for (planner::LayerId layer : engine.layers_held()) {
    ASSIGN_OR_RETURN(const LayerState state, engine.export_layer(layer));
    for (const NamedTensor& tensor : state.tensors)
      if (tensor.role == TensorRole::kWeight)
        parameters += static_cast<int64_t>(tensor.values.size());
  }
  const int64_t bytes = parameters * (config.numerics == planner::Numerics::kExact ? 20 : 16);
  if (engine.static_bytes() == bytes) return {};
  return internal_error("{} bytes are held for layers of {} bytes", engine.static_bytes(), bytes);
}

Status run(const Options& options, Communicator& world) {
  TrainConfig config = toy_config(number(options, "layers"), number(options, "batch"));
  config.micro_batch_size = number(options, "mbs");
  config.accumulation_scale = number(options, "scale");
  config.model.tied_head = number(options, "tied") != 0;
  config.model.mtp_num_layers = number(options, "mtp");
  ASSIGN_OR_RETURN(config.numerics, planner::parse_numerics(options.at("numerics")));
  ASSIGN_OR_RETURN(const planner::Plan plan, make_plan(options, config));
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, make_engine(config, plan, world));
  RETURN_IF_ERROR(check_memory(*engine, config));
  if (options.contains("load")) {
    std::string bytes;
    if (world.rank() == 0) {
      ASSIGN_OR_RETURN(bytes, read_file(options.at("load")));
    }
    RETURN_IF_ERROR(scatter_state(*engine, std::move(bytes), world));
  } else {
    RETURN_IF_ERROR(engine->initialize());
  }
  const ToyText text(config.model.vocab, number(options, "padding") != 0);
  const int begin = number(options, "begin"), steps = number(options, "steps");
  const auto print = [&](const std::string& line) {
    if (world.rank() == 0) std::printf("%s\n", line.c_str());
  };
  for (int step = begin; step < begin + steps; ++step) {
    // The last rank alone raises the flag, at the last step.
    const bool flag = step == begin + steps - 1 && world.rank() == world.size() - 1;
    ASSIGN_OR_RETURN(
        const StepResult r,
        engine->train_step(step, int64_t{step} * config.global_batch, text, flag, step > begin));
    if (r.any_flag != (step == begin + steps - 1))
      return internal_error("rank {}, step {}: the ranks do not agree on the flag", world.rank(),
                            step);
    std::string mtp;
    for (const double loss : r.mtp_losses) mtp += " mtp " + format_hex_double(loss);
    print(fmt::format("step {} loss {}{} norm {} lr {} scale {}", step, format_hex_double(r.loss),
                      mtp, format_hex_double(r.grad_norm), format_hex_double(r.learning_rate),
                      r.accumulation_scale));
  }
  ASSIGN_OR_RETURN(const double eval, engine->evaluate(text, 5));
  print(fmt::format("eval {}", format_hex_double(eval)));
  ASSIGN_OR_RETURN(const std::string state, gather_state(*engine, config, world));
  print(fmt::format("state {:016x}", fingerprint_bytes(state)));
  if (options.contains("save") && world.rank() == 0)
    RETURN_IF_ERROR(write_file_atomically(options.at("save"), state));
  return {};
}

}  // namespace
}  // namespace flextrain::trainer

int main(int argc, char** argv) {
  using namespace flextrain::trainer;
  Options options = {
      {"layers", "5"},      {"pp", "1"},           {"dp", "1"},        {"v", "1"},
      {"schedule", "1f1b"}, {"numerics", "exact"}, {"begin", "0"},     {"steps", "4"},
      {"batch", "6"},       {"tied", "0"},         {"recompute", "0"}, {"padding", "0"},
      {"scale", "44"},      {"mbs", "1"},          {"split", "0"},     {"mtp", "0"}};
  for (int i = 1; i < argc; ++i) {
    const std::string text = argv[i];
    const size_t equals = text.find('=');
    if (equals != std::string::npos) options[text.substr(0, equals)] = text.substr(equals + 1);
  }
  auto world = open_world(&argc, &argv);
  if (!world.ok()) {
    std::fprintf(stderr, "%s\n", world.status().to_string().c_str());
    return 1;
  }
  if (const flextrain::Status status = run(options, **world); !status.ok()) {
    std::fprintf(stderr, "%s\n", status.to_string().c_str());
    abort_world(1);
  }
  world->reset();
  close_world();
  return 0;
}
