// SPDX-License-Identifier: MIT
#include "trainer/run/session.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "trainer/checkpoint/collective.h"
#include "trainer/config/config_reader.h"
#include "trainer/data/prepare.h"
#include "trainer/engine/engine.h"
#include "trainer/run/plan_choice.h"
#include "trainer/run/profile_report.h"
#include "trainer/run/stop_signal.h"

namespace flextrain::trainer {
namespace {

constexpr std::chrono::seconds kSignPause{30};

Result<planner::Plan> choose_plan(const TrainConfig& config, const TrainOptions& options,
                                  const ControlDir& control, int ranks) {
  if (!options.plan_file.empty()) return read_plan(options.plan_file);
  ASSIGN_OR_RETURN(std::optional<planner::Plan> ordered, control.plan());
  if (ordered.has_value()) return *std::move(ordered);
  ASSIGN_OR_RETURN(planner::Plan plan, default_plan(config, ranks));
  if (!wants_made_schedule(config, plan)) return plan;
  // From the profile that an earlier run left; without one it is made after the first steps.
  const auto profile = find_profile(config, "");
  if (!profile.ok()) log_warning("{}; the schedule is made anew", profile.status().message());
  if (!profile.ok() || !profile->has_value()) return plan;
  ASSIGN_OR_RETURN(plan, default_plan(config, ranks, layer_costs_of(**profile)));
  ASSIGN_OR_RETURN(planner::PlannedSchedule made, make_schedule_for(config, **profile, plan));
  log_info("{} schedule: {}", config.schedule, made.text);
  return std::move(made.plan);
}

// Tells the agent that the data are still being prepared, which may take hours.
class PreparingSign {
 public:
  explicit PreparingSign(const ControlDir& control) {
    if (!control.present()) return;
    thread_ = std::thread([this, &control] {
      std::unique_lock lock(mutex_);
      do {
        control.mark("preparing");
      } while (!changed_.wait_for(lock, kSignPause, [this] { return ended_; }));
    });
  }
  ~PreparingSign() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }
  PreparingSign(const PreparingSign&) = delete;
  PreparingSign& operator=(const PreparingSign&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;
  std::thread thread_;
};

Result<PreparedData> prepare_with_sign(const TrainConfig& config, const ControlDir& control) {
  const PreparingSign sign(control);
  return prepare_data(config, stop_requested);
}

// Rank 0's part; the result goes to all ranks as one JSON text.
Result<std::string> open_on_root(const TrainOptions& options, const ControlDir& control,
                                 int ranks) {
  ASSIGN_OR_RETURN(TrainConfig config, read_train_config(options.job_file, options.overrides));
  RETURN_IF_ERROR(make_directories(config.output_dir));
  ASSIGN_OR_RETURN(const PreparedData data, prepare_with_sign(config, control));
  ASSIGN_OR_RETURN(config.model.vocab, vocab_for(config, data));
  ASSIGN_OR_RETURN(const planner::Plan plan, choose_plan(config, options, control, ranks));
  RETURN_IF_ERROR(check_plan(plan, config, ranks));
  return Json{{"config", config_to_json(config)},
              {"plan", planner::plan_to_json(plan)},
              {"token_prefix", data.token_prefix},
              {"data_hash", data.hash}}
      .dump();
}

// `exact` needs the same bits from every rank.
Status check_fingerprints(Communicator& world, const TrainConfig& config, const std::string& mine) {
  ASSIGN_OR_RETURN(const std::string roots, share(world, 0, mine));
  Status status;
  if (roots != mine && config.numerics == planner::Numerics::kExact) {
    status = failed_precondition(
        "its numerics are '{}', those of rank 0 are '{}': the bits would differ. Use nodes of one "
        "kind, or set training.numerics = \"fp32\" to give up exactness",
        mine, roots);
  }
  return agree(world, status);
}

}  // namespace

Result<Session> open_session(Communicator& world, const TrainOptions& options,
                             const ControlDir& control) {
  ASSIGN_OR_RETURN(const std::string text,
                   share(world, 0,
                         world.rank() == 0 ? open_on_root(options, control, world.size())
                                           : Result<std::string>("")));
  ASSIGN_OR_RETURN(const Json json, parse_json(text, "session"));
  ASSIGN_OR_RETURN(TrainConfig config, config_from_json(json["config"]));
  ASSIGN_OR_RETURN(planner::Plan plan, planner::plan_from_json(json["plan"]));
  const std::string fingerprint = numerics_fingerprint(config);
  RETURN_IF_ERROR(check_fingerprints(world, config, fingerprint));

  const auto open_dataset = [&]() -> Result<Dataset> {
    ASSIGN_OR_RETURN(TokenFile tokens, TokenFile::open(json["token_prefix"].get<std::string>()));
    return Dataset::create(std::move(tokens), config);
  };
  Result<Dataset> dataset = open_dataset();
  RETURN_IF_ERROR(agree(world, dataset.status()));
  const std::string data_hash = json["data_hash"].get<std::string>();
  RETURN_IF_ERROR(
      agree(world, world.rank() == 0 ? check_still_prepared(config, data_hash) : Status()));
  return Session{std::move(config), std::move(plan), fingerprint, data_hash, *std::move(dataset)};
}

}  // namespace flextrain::trainer
