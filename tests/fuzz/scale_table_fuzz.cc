// SPDX-License-Identifier: MIT
// Scale tables and profiles, read by the planner and by the controller. One JSON text is tried as
// each of them; a profile that is read becomes a table.
#include "base/bounded_json.h"
#include "planner/scale_table.h"
#include "slurm_plugin/controller/table_view.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace flextrain;
  const Result<Json> json = parse_bounded_json(fuzz::text_of(data, size), "table");
  if (!json.ok()) return 0;
  if (const auto table = planner::scale_table_from_json(*json); table.ok()) {
    FUZZ_REQUIRE(planner::scale_table_from_json(planner::scale_table_to_json(*table)).ok());
  }
  if (const auto view = slurm_plugin::read_scale_table(*json); view.ok()) {
    for (const auto& entry : view->entries) FUZZ_REQUIRE(view->tokens_per_second(entry.gpus) > 0);
    (void)view->best_within(8);
    (void)view->plan_for(8);
  }
  const auto profile = planner::profile_from_json(*json);
  if (!profile.ok() || profile->layers.size() < 3 || profile->layers.size() > 10) return 0;
  planner::ScaleRequest request;
  request.num_transformer_layers = static_cast<int>(profile->layers.size()) - 2;
  request.global_batch = 8;
  request.max_gpus = request.max_data_parallel = 8;
  request.memory_limit_bytes = int64_t{1} << 40;
  if (const auto table = planner::build_scale_table(*profile, request); table.ok()) {
    const auto again = planner::scale_table_from_json(planner::scale_table_to_json(*table));
    FUZZ_REQUIRE(again.ok());
  }
  return 0;
}
