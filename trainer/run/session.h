// SPDX-License-Identifier: MIT
// Everything a run needs before its first step, agreed on by all ranks: configuration, data, Plan,
// fingerprint.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "planner/plan.h"
#include "trainer/comm/communicator.h"
#include "trainer/config/train_config.h"
#include "trainer/data/dataset.h"
#include "trainer/run/commands.h"
#include "trainer/run/control_dir.h"

namespace flextrain::trainer {

struct Session {
  TrainConfig config;  // model.vocab is set
  planner::Plan plan;
  std::string fingerprint, data_hash;
  Dataset dataset;
};

// Collective. Rank 0 reads the configuration, prepares the data and chooses the Plan (--plan, else
// the control dir's plan.json, else [parallel]); the others receive them. In `exact`, ranks with
// different numerics are refused (kFailedPrecondition). The same Status on all ranks.
Result<Session> open_session(Communicator& world, const TrainOptions& options,
                             const ControlDir& control);

}  // namespace flextrain::trainer
