// SPDX-License-Identifier: MIT
// The job that the tests of the emulation and bench/prediction_bench.cc rehearse.
#pragma once

#include "planner/plan.h"
#include "trainer/config/train_config.h"

namespace flextrain::trainer {

struct RehearsedLayout {
  int pp, dp, virtual_stages;
  const char* schedule;
  planner::Recompute recompute = planner::Recompute::kNone;
};

inline TrainConfig rehearsed_job(int layers, int global_batch, int sequence) {
  TrainConfig config;
  config.model.layers = layers;
  config.model.hidden = 2048;
  config.model.heads = 16;
  config.model.kv_heads = 4;
  config.model.ffn = 5632;
  config.model.vocab = 32000;
  config.model.sequence = sequence;
  config.global_batch = global_batch;
  return config;
}

inline planner::Plan rehearsed_plan(const TrainConfig& config, const RehearsedLayout& at) {
  planner::RegularLayout layout;
  layout.num_transformer_layers = config.model.layers;
  layout.num_mtp_heads = config.model.mtp_num_layers;
  layout.pipeline_parallel = at.pp;
  layout.data_parallel = at.dp;
  layout.virtual_stages = at.virtual_stages;
  layout.global_batch = config.global_batch;
  layout.schedule = at.schedule;
  layout.recompute = at.recompute;
  return planner::make_regular_plan(layout).value();
}

}  // namespace flextrain::trainer
