// SPDX-License-Identifier: MIT
#include "planner/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace flextrain::planner {
namespace {

using Maker = Result<Schedule> (*)(int, int, int);

double makespan(Maker make, int stages, int virtual_stages, int micro_batches) {
  const auto schedule = make(stages, virtual_stages, micro_batches);
  EXPECT_TRUE(schedule.ok()) << schedule.status().to_string();
  ActionCosts costs;
  costs.forward = 1000.0 / virtual_stages;
  costs.backward = 2000.0 / virtual_stages;
  const auto report = check_schedule(*schedule, virtual_stages, micro_batches, costs);
  EXPECT_TRUE(report.ok()) << report.status().to_string();
  return report.ok() ? report->makespan : -1;
}

// The published numbers for F = B = W = 1000, here reached under rendezvous sends.
TEST(Schedule, GoldenMakespans) {
  struct Case {
    int stages, micro_batches;
    double plain, interleaved;
  };
  for (const Case& c :
       {Case{4, 8, 33000, 28500}, Case{8, 32, 117000, 106500}, Case{16, 64, 237000, 214500}}) {
    EXPECT_DOUBLE_EQ(makespan(make_1f1b, c.stages, 1, c.micro_batches), c.plain);
    EXPECT_DOUBLE_EQ(makespan(make_1f1b, c.stages, 2, c.micro_batches), c.interleaved);
    EXPECT_DOUBLE_EQ(makespan(make_gpipe, c.stages, 1, c.micro_batches), c.plain);
  }
}

// Plain schedules: m + p − 1 rounds of forward and backward, for every m.
TEST(Schedule, PlainMakespanIsTheFormula) {
  for (int stages = 1; stages <= 12; ++stages) {
    for (int micro_batches = 1; micro_batches <= 26; ++micro_batches) {
      const double expected = 3000.0 * (micro_batches + stages - 1);
      ASSERT_DOUBLE_EQ(makespan(make_1f1b, stages, 1, micro_batches), expected)
          << stages << ' ' << micro_batches;
      ASSERT_DOUBLE_EQ(makespan(make_gpipe, stages, 1, micro_batches), expected)
          << stages << ' ' << micro_batches;
    }
  }
}

// Interleaved with full groups: m·v + p − 1 rounds of one chunk.
TEST(Schedule, InterleavedMakespanIsTheFormula) {
  for (const int stages : {2, 3, 4, 6, 8}) {
    for (const int groups : {1, 2, 3, 5}) {
      for (const int virtual_stages : {2, 3, 4}) {
        const int micro_batches = stages * groups;
        const double expected =
            3000.0 * (micro_batches * virtual_stages + stages - 1) / virtual_stages;
        EXPECT_NEAR(makespan(make_1f1b, stages, virtual_stages, micro_batches), expected, 1e-3)
            << "p " << stages << " v " << virtual_stages << " m " << micro_batches;
      }
    }
  }
}

// Every p, v, m: complete, paired, free of deadlock under rendezvous, whatever the real times are.
TEST(Schedule, GridIsFreeOfDeadlock) {
  std::mt19937 random(17);
  std::lognormal_distribution<double> cost(0.0, 1.0);
  for (const Maker make : {make_1f1b, make_gpipe}) {
    for (int stages = 1; stages <= 9; ++stages) {
      for (int virtual_stages = 1; virtual_stages <= 4; ++virtual_stages) {
        for (int micro_batches = 1; micro_batches <= 21; ++micro_batches) {
          SCOPED_TRACE(fmt::format("p {} v {} m {}", stages, virtual_stages, micro_batches));
          const auto schedule = make(stages, virtual_stages, micro_batches);
          ASSERT_TRUE(schedule.ok()) << schedule.status().to_string();
          ActionCosts costs;
          costs.transfer = cost(random);
          costs.forward_of.resize(stages);
          costs.backward_of.resize(stages);
          for (int stage = 0; stage < stages; ++stage) {
            for (int chunk = 0; chunk < virtual_stages; ++chunk) {
              costs.forward_of[stage].push_back(cost(random));
              costs.backward_of[stage].push_back(cost(random));
            }
          }
          const auto report = check_schedule(*schedule, virtual_stages, micro_batches, costs);
          ASSERT_TRUE(report.ok()) << report.status().to_string();
        }
      }
    }
  }
}

TEST(Schedule, LargeShapes) {
  struct Case {
    int stages, virtual_stages, micro_batches;
  };
  for (const Case& c : {Case{100, 1, 7}, Case{64, 2, 130}, Case{61, 3, 64}, Case{33, 5, 32},
                        Case{2, 1, 5000}, Case{100, 3, 1}}) {
    for (const Maker make : {make_1f1b, make_gpipe}) {
      const auto schedule = make(c.stages, c.virtual_stages, c.micro_batches);
      ASSERT_TRUE(schedule.ok());
      const auto report = check_schedule(*schedule, c.virtual_stages, c.micro_batches, {});
      ASSERT_TRUE(report.ok()) << report.status().to_string();
    }
  }
}

// 1F1B keeps p − s micro-batches on stage s (plus one input that arrived early), GPipe all.
TEST(Schedule, PeakSlots) {
  for (int stages = 1; stages <= 8; ++stages) {
    for (int micro_batches = 1; micro_batches <= 20; ++micro_batches) {
      const auto plain = check_schedule(*make_1f1b(stages, 1, micro_batches), 1, micro_batches, {});
      const auto gpipe =
          check_schedule(*make_gpipe(stages, 1, micro_batches), 1, micro_batches, {});
      ASSERT_TRUE(plain.ok() && gpipe.ok());
      for (int stage = 0; stage < stages; ++stage) {
        EXPECT_LE(plain->peak_slots[stage], std::min(micro_batches, stages - stage + 1));
        EXPECT_EQ(gpipe->peak_slots[stage], micro_batches);
      }
    }
  }
}

// Slot numbers are dense, so an engine may allocate as many as the largest number says.
TEST(Schedule, SlotNumbersStayBelowThePeak) {
  for (const int virtual_stages : {1, 2, 3}) {
    for (int micro_batches = 1; micro_batches <= 20; ++micro_batches) {
      const Schedule schedule = *make_1f1b(4, virtual_stages, micro_batches);
      const auto report = check_schedule(schedule, virtual_stages, micro_batches, {});
      ASSERT_TRUE(report.ok());
      for (size_t stage = 0; stage < schedule.size(); ++stage) {
        int largest = 0;
        for (const Action& action : schedule[stage]) largest = std::max(largest, action.slot);
        EXPECT_EQ(largest + 1, report->peak_slots[stage]);
      }
    }
  }
}

// fp32 sums depend on the order: per chunk the backwards ascend by micro-batch in every schedule.
TEST(Schedule, GradientsAccumulateInTheSameOrder) {
  for (const Maker make : {make_1f1b, make_gpipe}) {
    for (const int virtual_stages : {1, 2, 3}) {
      const Schedule schedule = make(4, virtual_stages, 11).value();
      for (const StageActions& actions : schedule) {
        std::vector<int> last(virtual_stages, -1);
        for (const Action& action : actions) {
          if (action.kind != ActionKind::kBackward) continue;
          EXPECT_EQ(action.micro_batch, last[action.chunk] + 1);
          last[action.chunk] = action.micro_batch;
        }
      }
    }
  }
}

// With one chunk a Send follows its computation with nothing but other transfers between.
TEST(Schedule, PlainSendsFollowTheirComputation) {
  const Schedule schedule = make_1f1b(5, 1, 13).value();
  for (const StageActions& actions : schedule) {
    const Action* computed = nullptr;
    for (const Action& action : actions) {
      if (action.kind == ActionKind::kForward || action.kind == ActionKind::kBackward) {
        computed = &action;
      } else if (action.kind == ActionKind::kSendForward ||
                 action.kind == ActionKind::kSendBackward) {
        ASSERT_NE(computed, nullptr);
        EXPECT_EQ(computed->micro_batch, action.micro_batch);
        EXPECT_EQ(computed->kind == ActionKind::kForward, action.kind == ActionKind::kSendForward);
      }
    }
  }
}

// Messages from one stage to another are received in the order they are sent, in each direction
// and over both: MPI matches them without tags too.
TEST(Schedule, MessagesKeepTheirOrder) {
  for (const auto& [stages, virtual_stages] : {std::pair(2, 3), std::pair(3, 2), std::pair(4, 1)}) {
    const Schedule schedule = *make_1f1b(stages, virtual_stages, 10);
    for (int from = 0; from < stages; ++from) {
      for (int to = 0; to < stages; ++to) {
        std::vector<std::pair<bool, int>> sent, received;
        for (const Action& action : schedule[from]) {
          if (action.peer != to) continue;
          if (action.kind == ActionKind::kSendForward) sent.emplace_back(true, action.micro_batch);
          if (action.kind == ActionKind::kSendBackward)
            sent.emplace_back(false, action.micro_batch);
        }
        for (const Action& action : schedule[to]) {
          if (action.peer != from) continue;
          if (action.kind == ActionKind::kRecvForward)
            received.emplace_back(true, action.micro_batch);
          if (action.kind == ActionKind::kRecvBackward) {
            received.emplace_back(false, action.micro_batch);
          }
        }
        EXPECT_EQ(sent, received);
      }
    }
  }
}

TEST(Schedule, ListsEndWithReduceAndStep) {
  const Schedule schedule = make_1f1b(3, 2, 5).value();
  for (const StageActions& actions : schedule) {
    ASSERT_GE(actions.size(), 3u);
    EXPECT_EQ(actions.back().kind, ActionKind::kStep);
    EXPECT_EQ(actions[actions.size() - 2].kind, ActionKind::kReduce);
    EXPECT_EQ(actions[actions.size() - 2].chunk, 1);
    EXPECT_EQ(actions[actions.size() - 3].kind, ActionKind::kReduce);
  }
}

TEST(Schedule, OfAPlan) {
  RegularLayout layout;
  layout.num_transformer_layers = 4;
  layout.pipeline_parallel = 2;
  layout.global_batch = 6;
  for (const std::string name : {"1f1b", "gpipe"}) {
    layout.schedule = name;
    Plan plan = make_regular_plan(layout).value();
    const Schedule expected = name == "gpipe" ? *make_gpipe(2, 1, 6) : *make_1f1b(2, 1, 6);
    EXPECT_EQ(schedule_of(plan, 0).value(), expected);
    EXPECT_FALSE(schedule_of(plan, 1).ok());
    EXPECT_FALSE(schedule_of(plan, -1).ok());
    plan.schedule = "explicit";
    EXPECT_FALSE(schedule_of(plan, 0).ok());
    plan.explicit_actions = {expected};
    EXPECT_TRUE(validate_plan(plan).ok());
    EXPECT_EQ(schedule_of(plan, 0).value(), expected);
  }
}

TEST(Schedule, RefusesImpossibleShapes) {
  for (const Maker make : {make_1f1b, make_gpipe}) {
    EXPECT_EQ(make(0, 1, 1).status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(make(1, 0, 1).status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(make(1, 1, 0).status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(make(-1, 1, 1).status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(make(1 << 20, 1 << 20, 1 << 20).status().code(), StatusCode::kInvalidArgument);
  }
}

TEST(ActionKind, NamesBothWays) {
  for (int kind = 0; kind <= static_cast<int>(ActionKind::kStep); ++kind) {
    const auto value = static_cast<ActionKind>(kind);
    EXPECT_EQ(parse_action_kind(action_kind_name(value)).value(), value);
  }
  EXPECT_EQ(action_kind_name(ActionKind::kSendForward), "SendForward");
  EXPECT_FALSE(parse_action_kind("Sendforward").ok());
}

}  // namespace
}  // namespace flextrain::planner
