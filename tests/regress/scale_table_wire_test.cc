// SPDX-License-Identifier: MIT
// What went wrong: the planner wrote a scale entry's key flat ("gpus") while agent and controller
// read it under "shape". Each side's tests used tables made by hand, so every real table would have
// been refused. Here a table of the planner's goes through the controller's reader.
#include <gtest/gtest.h>

#include "planner/scale_table.h"
#include "slurm_plugin/controller/table_view.h"

namespace flextrain {
namespace {

TEST(ScaleTableWire, ControllerReadsWhatThePlannerWrites) {
  planner::StepProfile profile;
  profile.layers.resize(8);
  for (planner::LayerProfile& layer : profile.layers) {
    layer = {.forward = 0.01, .backward = 0.02, .static_bytes = 1000, .activation_bytes = 100};
  }
  profile.optimizer_seconds = 0.001;
  profile.pipeline_parallel = 2;
  profile.steps = 3;
  planner::ScaleRequest request;
  request.num_transformer_layers = 6;
  request.global_batch = 12;
  request.tokens_per_step = 1536;
  request.max_gpus = 6;
  request.max_data_parallel = 12;
  const auto table = planner::build_scale_table(profile, request);
  ASSERT_TRUE(table.ok()) << table.status().to_string();

  const auto view = slurm_plugin::read_scale_table(planner::scale_table_to_json(*table));
  ASSERT_TRUE(view.ok()) << view.status().to_string();
  size_t kept = 0;
  for (const planner::ScaleEntry& entry : table->entries) {
    if (!entry.kept) continue;
    ++kept;
    const auto plan = planner::plan_from_json(view->plan_for(entry.shape.gpus));
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    EXPECT_EQ(planner::num_ranks(*plan), entry.shape.gpus);
  }
  EXPECT_GE(kept, 3u);
}

}  // namespace
}  // namespace flextrain
