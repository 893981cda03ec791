// SPDX-License-Identifier: MIT
#include "planner/schedule_family.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <random>

#include "planner/schedule_draw.h"
#include "planner/schedule_search.h"
#include "planner/v_schedule.h"

namespace flextrain::planner {
namespace {

using ::testing::HasSubstr;

// F = B = W = 1000, as published; a micro-batch's activation is 1, half of it freed by Backward.
constexpr ChunkCosts kUnit{.forward = 1000, .backward = 1000, .wgrad = 1000, .wgrad_kept = 0.5};

PipelineCosts unit_costs(int stages, int virtual_stages, int micro_batches,
                         ChunkOrder order = ChunkOrder::kLoop) {
  ChunkCosts costs = kUnit;
  for (double* time : {&costs.forward, &costs.backward, &costs.wgrad}) *time /= virtual_stages;
  return uniform_costs({stages, virtual_stages, micro_batches, order}, costs);
}

MadeSchedule made(ScheduleFamily family, const PipelineCosts& costs) {
  Result<MadeSchedule> result = make_schedule(family, costs);
  EXPECT_TRUE(result.ok()) << result.status().to_string();
  return result.ok() ? std::move(*result) : MadeSchedule{};
}

TEST(ScheduleFamily, GoldenTable) {
  struct Row {
    int stages, micro_batches;
    double plain, interleaved, zb1p, zb2p;
  };
  for (const Row& row :
       {Row{4, 8, 33000, 28500, 27000, 24000}, Row{8, 32, 117000, 106500, 103000, 96000},
        Row{16, 64, 237000, 214500, 207000, 192000}}) {
    const PipelineCosts plain = unit_costs(row.stages, 1, row.micro_batches);
    EXPECT_LE(made(ScheduleFamily::k1F1B, plain).report.makespan, row.plain);
    EXPECT_LE(
        made(ScheduleFamily::k1F1B, unit_costs(row.stages, 2, row.micro_batches)).report.makespan,
        row.interleaved);
    const MadeSchedule zb1p = made(ScheduleFamily::kZb1p, plain);
    EXPECT_LE(zb1p.report.makespan, row.zb1p);
    // No schedule of this shape is shorter.
    EXPECT_DOUBLE_EQ(zb1p.report.makespan, zb1p.lower_bound);
    EXPECT_LE(made(ScheduleFamily::kZb2p, plain).report.longest_span, row.zb2p);
    // In the memory of 1F1B, even when nothing is freed before the weight gradient.
    for (const int slots : zb1p.report.peak_slots) EXPECT_LE(slots, row.stages + 1);
  }
}

// The front of controllable memory: bubble slots of half a chunk against peak memory in half
// chunks; the span of the stage that works longest.
TEST(ScheduleFamily, BubbleVersusMemoryFront) {
  struct Front {
    int stages;
    std::vector<int> bubbles;  // at peak stages, stages + 1, …
  };
  for (const Front& front :
       {Front{4, {11, 8, 5, 3, 0}}, Front{8, {23, 20, 17, 14, 11, 8, 5, 3, 0}}}) {
    const int micro_batches = 2 * front.stages;
    for (size_t i = 0; i < front.bubbles.size(); ++i) {
      const double cap = front.stages + static_cast<double>(i);
      PipelineCosts costs =
          uniform_costs({front.stages, 2, micro_batches, ChunkOrder::kV}, {.wgrad_kept = 0.5});
      costs.memory_cap.assign(front.stages, cap);
      const auto schedule = make_v_shape(costs, VObjective::kLongestSpan);
      ASSERT_TRUE(schedule.ok()) << schedule.status().to_string();
      const auto report = check_schedule(*schedule, costs.shape, action_costs(costs, true));
      ASSERT_TRUE(report.ok()) << report.status().to_string();
      for (const double peak : report->peak_memory) EXPECT_LE(peak, cap);
      EXPECT_LE(report->longest_span - 6 * micro_batches, front.bubbles[i])
          << "p " << front.stages << " peak " << cap;
    }
  }
}

TEST(ScheduleFamily, MemoryMinHoldsOneMicroBatch) {
  for (const int virtual_stages : {1, 2, 3}) {
    const MadeSchedule schedule =
        made(ScheduleFamily::kMemoryMin, unit_costs(4, virtual_stages, 6));
    for (const double peak : schedule.report.peak_memory) EXPECT_EQ(peak, virtual_stages);
  }
}

// Random costs, caps and shapes, p up to 32 and m up to 128, every generator and the search: a
// checked schedule that keeps the caps, or one clear refusal.
TEST(ScheduleFamily, RandomCostsPassTheChecker) {
  std::mt19937 random(20260);
  std::lognormal_distribution<double> cost(0.0, 0.7);
  std::uniform_real_distribution<double> share(0.0, 1.0);
  int schedules = 0, refused = 0, searched = 0;
  for (int round = 0; round < 60; ++round) {
    ScheduleShape shape;
    const bool large = round % 6 == 0;
    shape.stages = 1 + static_cast<int>(random() % (large ? 32 : 8));
    shape.virtual_stages = shape.stages == 1 ? 1 : 1 + static_cast<int>(random() % 3);
    shape.micro_batches = 1 + static_cast<int>(random() % (large ? 128 : 20));
    if (round == 0) shape = {32, 2, 128};
    if (shape.virtual_stages == 2 && random() % 2 == 0) shape.order = ChunkOrder::kV;
    PipelineCosts costs = uniform_costs(shape, {});
    for (auto& row : costs.chunks) {
      for (ChunkCosts& chunk : row) {
        chunk.forward = cost(random);
        chunk.backward = cost(random);
        chunk.wgrad = cost(random);
        chunk.transfer = random() % 2 == 0 ? 0 : 0.1 * cost(random);
        chunk.activation = cost(random);
        if (random() % 3 == 0) {
          chunk.recompute = chunk.forward;
          chunk.recomputed = cost(random);
        }
        chunk.wgrad_kept = share(random) * (chunk.activation + chunk.recomputed);
      }
    }
    if (random() % 2 == 0) {
      for (int stage = 0; stage < shape.stages; ++stage) {
        costs.memory_cap.push_back(shape.virtual_stages * (1 + 6 * share(random)) * cost(random));
      }
    }
    for (const ScheduleFamily family : kAllFamilies) {
      if (family == ScheduleFamily::kSearched) continue;
      if (family == ScheduleFamily::kVShape && shape.order != ChunkOrder::kV) continue;
      SCOPED_TRACE(fmt::format("round {} p {} v {} m {} {}", round, shape.stages,
                               shape.virtual_stages, shape.micro_batches, family_name(family)));
      const auto schedule = make_schedule(family, costs);
      if (!schedule.ok()) {
        ASSERT_EQ(schedule.status().code(), StatusCode::kResourceExhausted)
            << schedule.status().to_string();
        ASSERT_FALSE(costs.memory_cap.empty());
        ++refused;
        continue;
      }
      ++schedules;
      EXPECT_GE(schedule->report.makespan, schedule->lower_bound * (1 - 1e-9));
      for (size_t stage = 0; stage < costs.memory_cap.size(); ++stage) {
        EXPECT_LE(schedule->report.peak_memory[stage], costs.memory_cap[stage] * (1 + 1e-9));
      }
    }
    for (const SearchMethod method : {SearchMethod::kBestFirst, SearchMethod::kDepthFirst}) {
      if (large && method == SearchMethod::kDepthFirst) continue;  // seldom completes an order
      const auto found = search_schedule(costs, {method, large ? 4 : 200, {}});
      if (!found.ok()) {
        EXPECT_EQ(found.status().code(), StatusCode::kResourceExhausted);
        continue;
      }
      ++searched;
      const auto report = check_schedule(found->best.actions, shape,
                                         action_costs(costs, found->best.split_backward));
      ASSERT_TRUE(report.ok()) << report.status().to_string();
      EXPECT_GE(report->makespan, found->best.lower_bound * (1 - 1e-9));
      for (size_t stage = 0; stage < costs.memory_cap.size(); ++stage) {
        EXPECT_LE(report->peak_memory[stage], costs.memory_cap[stage] * (1 + 1e-9));
      }
    }
  }
  EXPECT_GT(searched, 50);
  EXPECT_GT(schedules, 150);
  EXPECT_GT(refused, 10);
}

// The lists that a Plan's name stands for, and those of V shapes for another aim: nobody else has
// checked them.
TEST(ScheduleFamily, ListsThatPlansNamePassTheChecker) {
  std::mt19937 random(11);
  for (int round = 0; round < 60; ++round) {
    const bool large = round % 6 == 0;
    RegularLayout layout;
    layout.pipeline_parallel = 2 + static_cast<int>(random() % (large ? 31 : 7));
    layout.global_batch = 1 + static_cast<int>(random() % (large ? 128 : 20));
    if (round == 0) layout.pipeline_parallel = 32, layout.global_batch = 128;
    layout.num_transformer_layers = 1 + static_cast<int>(random() % 70);
    layout.num_mtp_heads = static_cast<int>(random() % 3);
    layout.empty_stages = true;
    for (const char* schedule : {"1f1b", "gpipe", "memory-min", "zb-1p", "v-shape"}) {
      layout.schedule = schedule;
      const bool v_shape = layout.schedule == "v-shape";
      layout.virtual_stages = v_shape ? 2 : 1 + static_cast<int>(random() % 3);
      Plan plan = make_regular_plan(layout).value();
      for (LayerId layer = 1; layer < num_layers(plan); ++layer) {
        if (is_block(plan, layer)) plan.recompute[layer] = static_cast<Recompute>(random() % 3);
      }
      SCOPED_TRACE(fmt::format("{}, {} micro-batches", plan_summary(plan), layout.global_batch));
      const ScheduleShape shape = shape_of(plan, 0).value();
      const auto lists = schedule_of(plan, 0);
      ASSERT_TRUE(lists.ok()) << lists.status().to_string();
      const auto report = check_schedule(*lists, shape, {});
      ASSERT_TRUE(report.ok()) << report.status().to_string();
      if (!v_shape || large) continue;
      PipelineCosts costs = uniform_costs(shape, {});
      costs.memory_cap.assign(shape.stages, 2 + static_cast<double>(random() % 8));
      const auto staggered = make_v_shape(costs, VObjective::kLongestSpan);
      ASSERT_TRUE(staggered.ok()) << staggered.status().to_string();
      const auto checked = check_schedule(*staggered, shape, action_costs(costs, true));
      ASSERT_TRUE(checked.ok()) << checked.status().to_string();
      for (const double peak : checked->peak_memory) EXPECT_LE(peak, costs.memory_cap[0]);
    }
  }
}

TEST(ScheduleFamily, RefusesUnusableCosts) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const struct {
    std::string what;
    std::function<void(PipelineCosts&)> spoil;
  } cases[] = {
      {"the forward time of stage 1, chunk 0 is 0",
       [](PipelineCosts& c) { c.chunks[1][0].forward = 0; }},
      {"the backward time of stage 0, chunk 0 is -1",
       [](PipelineCosts& c) { c.chunks[0][0].backward = -1; }},
      {"the weight gradient time of stage 2, chunk 0 is nan",
       [&](PipelineCosts& c) { c.chunks[2][0].wgrad = nan; }},
      {"the transfer time of stage 0, chunk 0 is inf",
       [](PipelineCosts& c) { c.chunks[0][0].transfer = std::numeric_limits<double>::infinity(); }},
      {"the memory cap of stage 1 is 0",
       [](PipelineCosts& c) {
         c.memory_cap = {1, 0, 1, 1};
       }},
      {"3 memory caps for 4 stages",
       [](PipelineCosts& c) {
         c.memory_cap = {1, 1, 1};
       }},
      {"4 stages of 1 chunks", [](PipelineCosts& c) { c.chunks.pop_back(); }},
      {"must be at least 1", [](PipelineCosts& c) { c.shape.micro_batches = 0; }},
  };
  for (const auto& c : cases) {
    PipelineCosts costs = unit_costs(4, 1, 8);
    c.spoil(costs);
    for (const ScheduleFamily family : kAllFamilies) {
      const auto schedule = make_schedule(family, costs);
      ASSERT_FALSE(schedule.ok()) << c.what;
      EXPECT_EQ(schedule.status().code(), StatusCode::kInvalidArgument);
      EXPECT_THAT(schedule.status().message(), HasSubstr(c.what));
    }
    EXPECT_THAT(search_schedule(costs, {}).status().message(), HasSubstr(c.what));
  }
}

TEST(ScheduleFamily, NamesTheCapThatIsTooSmall) {
  PipelineCosts costs = unit_costs(4, 1, 8);
  costs.memory_cap = {9, 9, 0.5, 9};
  for (const ScheduleFamily family :
       {ScheduleFamily::kGpipe, ScheduleFamily::kMemoryMin, ScheduleFamily::kZb1p}) {
    const auto schedule = make_schedule(family, costs);
    ASSERT_FALSE(schedule.ok());
    EXPECT_EQ(schedule.status().code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(schedule.status().message(), HasSubstr("stage 2"));
    EXPECT_THAT(schedule.status().message(), HasSubstr("cap is 0.5"));
  }
  EXPECT_FALSE(search_schedule(costs, {}).ok());
}

TEST(ScheduleFamily, NamesBothWays) {
  for (const ScheduleFamily family : kAllFamilies) {
    EXPECT_EQ(parse_family(family_name(family)).value(), family);
  }
  EXPECT_FALSE(parse_family("zigzag").ok());
  EXPECT_THAT(parse_plan_schedule("zb-2p").status().message(), HasSubstr("planner result only"));
}

// Recomputation stands in the lists, once before each Backward.
TEST(ScheduleFamily, RecomputeIsAnAction) {
  PipelineCosts costs = unit_costs(3, 1, 5);
  costs.chunks[1][0].recompute = 500;
  for (const ScheduleFamily family :
       {ScheduleFamily::kGpipe, ScheduleFamily::k1F1B, ScheduleFamily::kZb1p}) {
    const MadeSchedule schedule = made(family, costs);
    for (int stage = 0; stage < 3; ++stage) {
      const auto count =
          std::count_if(schedule.actions[stage].begin(), schedule.actions[stage].end(),
                        [](const Action& action) { return action.kind == ActionKind::kRecompute; });
      EXPECT_EQ(count, stage == 1 ? 5 : 0);
    }
  }
}

TEST(ScheduleSearch, NeverWorseThanAClosedFormUnderTheSameCaps) {
  std::mt19937 random(7);
  std::lognormal_distribution<double> cost(0.0, 0.5);
  int improved = 0;
  for (int round = 0; round < 12; ++round) {
    PipelineCosts costs = unit_costs(2 + round % 4, 1, 4 + round % 5);
    for (auto& row : costs.chunks) {
      for (ChunkCosts& chunk : row) {
        chunk.forward = cost(random);
        chunk.backward = cost(random);
        chunk.wgrad = cost(random);
      }
    }
    if (round % 2 == 1) costs.memory_cap.assign(costs.shape.stages, 3);
    for (const SearchMethod method : {SearchMethod::kDepthFirst, SearchMethod::kBestFirst}) {
      SearchOptions options{method, method == SearchMethod::kDepthFirst ? 20000 : 300, {}};
      const auto found = search_schedule(costs, options);
      ASSERT_TRUE(found.ok()) << found.status().to_string();
      EXPECT_LE(found->expansions, options.max_expansions);
      EXPECT_GE(found->best.report.makespan, found->best.lower_bound * (1 - 1e-9));
      for (const ScheduleFamily family : kAllFamilies) {
        const auto closed = make_schedule(family, costs);
        if (closed.ok()) {
          EXPECT_LE(found->best.report.makespan, closed->report.makespan * (1 + 1e-9));
        }
      }
      for (const double peak : found->best.report.peak_memory) {
        if (!costs.memory_cap.empty()) {
          EXPECT_LE(peak, 3 * (1 + 1e-9));
        }
      }
      improved += found->best.family == ScheduleFamily::kSearched;
      // The same again.
      EXPECT_EQ(search_schedule(costs, options)->best.actions, found->best.actions);
    }
  }
  EXPECT_GT(improved, 0);
}

// A cap makes stages wait, and the bound knows how long; trying everything proves the rest.
TEST(ScheduleSearch, TheLowerBoundTightens) {
  PipelineCosts costs = unit_costs(4, 1, 8);
  const double free = makespan_lower_bound(costs);
  EXPECT_DOUBLE_EQ(free, 27000);
  costs.memory_cap.assign(4, 1);  // one micro-batch at a time: 8 times 4 stages there and back
  EXPECT_NEAR(makespan_lower_bound(costs), 8 * 8000, 1);
  EXPECT_NEAR(made(ScheduleFamily::kMemoryMin, costs).report.makespan, 8 * 12000, 1);
  costs.memory_cap.assign(4, 2);
  EXPECT_GT(makespan_lower_bound(costs), free);

  // Small enough to try all orders.
  PipelineCosts small = unit_costs(2, 1, 3);
  small.chunks[1][0].forward = 1700;
  small.chunks[0][0].wgrad = 400;
  const auto found = search_schedule(small, {});
  ASSERT_TRUE(found.ok());
  EXPECT_TRUE(found->optimal) << search_summary(*found);
  EXPECT_GT(found->best.lower_bound, makespan_lower_bound(small) * (1 - 1e-9));
  EXPECT_THAT(search_summary(*found), HasSubstr("optimal"));
}

TEST(ScheduleSearch, StopsWhenTheCallersTimeIsUp) {
  PipelineCosts costs = unit_costs(4, 1, 8);
  costs.chunks[1][0].forward = 1700;
  SearchOptions options;
  options.out_of_time = [] { return true; };
  const auto found = search_schedule(costs, options);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->expansions, 0);
  EXPECT_THAT(search_summary(*found), HasSubstr("lower bound"));
}

TEST(ScheduleDraw, ShowsEveryStage) {
  const MadeSchedule schedule = made(ScheduleFamily::kZb1p, unit_costs(3, 1, 3));
  EXPECT_EQ(schedule_as_text(schedule.report, 200),
            "  0 |F0F1F2....B0W0B1W1B2W2|\n"
            "  1 |..F0F1..B0F2B1W0B2W1W2|\n"
            "  2 |....F0B0F1B1F2B2W0W1W2|\n");
  const std::string svg = schedules_as_svg({{schedule.report, "a <b> & \"c\""}});
  EXPECT_THAT(svg, HasSubstr("a &lt;b&gt; &amp; &quot;c&quot;"));
  EXPECT_THAT(svg, HasSubstr("Wgrad 2"));
  const auto trace = parse_json(schedules_as_chrome_trace({{schedule.report, "p"}}), "trace");
  ASSERT_TRUE(trace.ok());
  // 3 stages x 3 micro-batches x F, B, W and the names.
  EXPECT_EQ((*trace)["traceEvents"].size(), 27u + 4u);
}

}  // namespace
}  // namespace flextrain::planner
