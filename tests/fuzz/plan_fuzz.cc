// SPDX-License-Identifier: MIT
// Plans, and what takes a valid one: its schedules, their checker, the rank look-up, its own text.
#include "base/bounded_json.h"
#include "planner/plan.h"
#include "planner/schedule.h"
#include "tests/fuzz/fuzz_target.h"

namespace flextrain::planner {
namespace {

constexpr int64_t kMostWork = 4096;  // chunks x micro-batches: larger ones only cost time

void use(const Plan& plan) {
  FUZZ_REQUIRE(validate_plan(plan).ok());
  const Result<Plan> again = plan_from_json(plan_to_json(plan));
  FUZZ_REQUIRE(again.ok() && again->id == plan.id);
  FUZZ_REQUIRE(!plan_summary(plan).empty());
  FUZZ_REQUIRE(total_micro_batches(plan) >= 1);
  const int ranks = num_ranks(plan);
  for (int rank = 0; rank < ranks && rank < 64; ++rank) FUZZ_REQUIRE(find_rank(plan, rank).ok());
  FUZZ_REQUIRE(!find_rank(plan, ranks).ok());
  for (size_t p = 0; p < plan.pipelines.size() && p < 4; ++p) {
    const Pipeline& pipeline = plan.pipelines[p];
    const size_t chunks = pipeline.stages.front().chunks.size();
    if (static_cast<int64_t>(pipeline.stages.size() * chunks) * pipeline.micro_batches >
        kMostWork) {
      continue;
    }
    const Result<Schedule> schedule = schedule_of(plan, static_cast<int>(p));
    FUZZ_REQUIRE(schedule.ok());
    FUZZ_REQUIRE(
        check_schedule(*schedule, static_cast<int>(chunks), pipeline.micro_batches, {}).ok());
  }
}

}  // namespace
}  // namespace flextrain::planner

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace flextrain;
  Result<Json> json = parse_bounded_json(fuzz::text_of(data, size), "Plan");
  if (!json.ok()) return 0;
  if (const auto plan = planner::plan_from_json(*json); plan.ok()) planner::use(*plan);
  if (!json->is_object() || json->erase("id") == 0) return 0;
  if (const auto plan = planner::plan_from_json(*json); plan.ok()) planner::use(*plan);
  return 0;
}
