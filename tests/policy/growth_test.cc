// SPDX-License-Identifier: MIT
// Scale-up: one table of refusals, then the growths.
#include <algorithm>
#include <cmath>
#include <functional>

#include "tests/policy/builders.h"

namespace flextrain::policy {
namespace {

Snapshot one_job_one_idle_node() {
  Snapshot snapshot = empty_snapshot();
  snapshot.elastic = {elastic(7, 4)};
  snapshot.elastic[0].offers = {{"n3", 8}};
  snapshot.idle_gpus = 8;
  return snapshot;
}

TEST(Growth, TakesTheBestEntryWithinIdle) {
  const auto decisions = decide(one_job_one_idle_node(), no_gate());
  ASSERT_EQ(decisions.size(), 1u);
  EXPECT_EQ(decisions[0].kind, DecisionKind::kGrow);
  EXPECT_EQ(decisions[0].job_id, 7u);
  EXPECT_EQ(decisions[0].from_gpus, 4);
  EXPECT_EQ(decisions[0].to_gpus, 12);
  EXPECT_EQ(taken(decisions[0]), 8);
  EXPECT_NEAR(decisions[0].inputs.at("S"), 2.65, 1e-9);
}

struct Case {
  const char* name;
  std::function<void(Snapshot&, Parameters&)> change;
  const char* rule;  // "" = grows
};

class GrowthTable : public ::testing::TestWithParam<Case> {};

TEST_P(GrowthTable, Rule) {
  Snapshot snapshot = one_job_one_idle_node();
  Parameters parameters = no_gate();
  GetParam().change(snapshot, parameters);
  const auto decisions = decide(snapshot, parameters);
  ASSERT_EQ(decisions.size(), snapshot.elastic.size());
  const Decision& decision =
      *std::find_if(decisions.begin(), decisions.end(),
                    [&](const Decision& d) { return d.job_id == snapshot.elastic[0].job_id; });
  EXPECT_FALSE(decision.reason.empty());
  if (*GetParam().rule == 0) {
    EXPECT_EQ(decision.kind, DecisionKind::kGrow) << decision.reason;
    EXPECT_GT(taken(decision), 0);
  } else {
    EXPECT_EQ(decision.kind, DecisionKind::kRefuseGrow);
    EXPECT_EQ(decision.rule, GetParam().rule) << decision.reason;
    EXPECT_TRUE(decision.take.empty());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Rules, GrowthTable,
    ::testing::Values(
        Case{"plain", [](Snapshot&, Parameters&) {}, ""},
        Case{"not_steady", [](Snapshot& s, Parameters&) { s.elastic[0].steady = false; },
             "not-steady"},
        Case{"at_users_max", [](Snapshot& s, Parameters&) { s.elastic[0].max_gpus = 4; }, "at-max"},
        Case{"at_factor",
             [](Snapshot& s, Parameters&) {
               s.elastic[0].max_gpus = 100;
               for (uint32_t i = 0; i < 3; ++i)
                 add_companion(s.elastic[0], 90 + i, "x" + std::to_string(i), 4);
             },
             "at-max"},
        Case{"no_table", [](Snapshot& s, Parameters&) { s.elastic[0].table.clear(); }, "no-table"},
        Case{"held",
             [](Snapshot& s, Parameters&) {
               s.elastic[0].hold_rule = "paused";
               s.elastic[0].hold_reason = "by an operator";
               s.elastic[0].steady = false;  // the stronger word is the one recorded
             },
             "paused"},
        Case{"queue",
             [](Snapshot& s, Parameters&) {
               s.waiting.emplace_back();
               s.waiting[0].job_id = 50;
               s.waiting[0].gpus = 8;
             },
             "queue-not-empty"},
        Case{"held_jobs_do_not_count",
             [](Snapshot& s, Parameters&) { s.other_waiting_gpu_jobs = 3; }, ""},
        Case{"failed_just_now",
             [](Snapshot& s, Parameters&) {
               s.elastic[0].failures = 1;
               s.elastic[0].last_failure_time = kNow - 59;
             },
             "failure-pause"},
        Case{"failed_a_while_ago",
             [](Snapshot& s, Parameters&) {
               s.elastic[0].failures = 1;
               s.elastic[0].last_failure_time = kNow - 60;
             },
             ""},
        Case{"failed_thrice",
             [](Snapshot& s, Parameters&) {
               s.elastic[0].failures = 3;
               s.elastic[0].last_failure_time = kNow - 239;
             },
             "failure-pause"},
        Case{"failed_a_hundred_times",
             [](Snapshot& s, Parameters&) {
               s.elastic[0].failures = 100;
               s.elastic[0].last_failure_time = kNow - 60 * 64;
             },
             ""},
        Case{"cooldown",
             [](Snapshot& s, Parameters& p) {
               p.cooldown_seconds = 100;
               s.elastic[0].last_switch_time = kNow - 99;
             },
             "cooldown"},
        Case{"cooled_down",
             [](Snapshot& s, Parameters& p) {
               p.cooldown_seconds = 100;
               s.elastic[0].last_switch_time = kNow - 100;
             },
             ""},
        Case{"switched_too_often",
             [](Snapshot& s, Parameters& p) {
               p.max_scalings_per_hour = 3;
               s.elastic[0].scalings_last_hour = 3;
             },
             "scalings-per-hour"},
        Case{"may_switch_once_more",
             [](Snapshot& s, Parameters& p) {
               p.max_scalings_per_hour = 3;
               s.elastic[0].scalings_last_hour = 2;
             },
             ""},
        Case{"quiet",  // kNow is Monday 1970-01-12, 13:46:40 UTC
             [](Snapshot&, Parameters& p) { p.quiet_hours = *QuietHours::parse("Mon 13:00-14:00"); },
             "quiet-hours"},
        Case{"quiet_elsewhere",
             [](Snapshot& s, Parameters& p) {
               p.quiet_hours = *QuietHours::parse("Mon 13:00-14:00");
               s.local_offset_seconds = 3600;
             },
             ""},
        Case{"users_cap",  // 4 of 8 are left, and no entry ends there
             [](Snapshot& s, Parameters& p) {
               p.user_max_expanded = 12;
               s.elastic.push_back(elastic(8, 4));
               add_companion(s.elastic[1], 90, "x", 8);
               s.elastic[1].steady = false;
               s.elastic[0].table = {{4, 1000}, {12, 2650}};
             },
             "user-cap"},
        Case{"users_cap_counts_what_is_ordered",
             [](Snapshot& s, Parameters& p) {
               p.user_max_expanded = 8;
               s.elastic.push_back(elastic(8, 4));
               s.elastic[1].steady = false;
               s.elastic[1].pending_gpus = 8;
             },
             "user-cap"},
        Case{"another_users_cap",
             [](Snapshot& s, Parameters& p) {
               p.user_max_expanded = 8;
               s.elastic.push_back(elastic(8, 4));
               s.elastic[1].user = "bert";
               s.elastic[1].steady = false;
               s.elastic[1].pending_gpus = 8;
             },
             ""},
        Case{"accounts_cap",
             [](Snapshot& s, Parameters& p) {
               p.account_max_expanded = 3;
               s.elastic[0].account = "physics";
             },
             "account-cap"},
        Case{"idle_reserve",
             [](Snapshot& s, Parameters& p) {
               p.idle_reserve = 0.6;
               s.idle_gpus = 8;  // 3 of them may be used
             },
             "idle-reserve"},
        Case{"idle_reserve_left",
             [](Snapshot& s, Parameters& p) {
               p.idle_reserve = 0.5;
               s.idle_gpus = 8;
             },
             ""},
        Case{"nothing_idle", [](Snapshot& s, Parameters&) { s.elastic[0].offers.clear(); },
             "no-idle"},
        Case{"own_companion_there",
             [](Snapshot& s, Parameters&) { add_companion(s.elastic[0], 90, "n3", 4); }, "no-idle"},
        Case{"too_little_idle",
             [](Snapshot& s, Parameters&) {
               s.elastic[0].offers = {{"n3", 3}};
             },
             "no-entry"},
        Case{"more_is_slower",
             [](Snapshot& s, Parameters&) {
               s.elastic[0].table = {{4, 1000}, {8, 990}, {12, 1000}};
             },
             "no-entry"},
        Case{"guard_nearly_done",  // S = 2.65: saves 0.6226 R
             [](Snapshot& s, Parameters&) {
               s.elastic[0].grow_overhead_seconds = 10;
               s.elastic[0].remaining_seconds = 16;
             },
             "guard"},
        Case{"guard_passes",
             [](Snapshot& s, Parameters&) {
               s.elastic[0].grow_overhead_seconds = 10;
               s.elastic[0].remaining_seconds = 16.1;
             },
             ""},
        Case{"guard_by_age",  // runs for as long again as it has run: 16 s
             [](Snapshot& s, Parameters&) {
               s.elastic[0].grow_overhead_seconds = 10;
               s.elastic[0].start_time = kNow - 16;
             },
             "guard"},
        Case{"guard_by_age_passes",
             [](Snapshot& s, Parameters&) {
               s.elastic[0].grow_overhead_seconds = 10;
               s.elastic[0].start_time = kNow - 17;
             },
             ""},
        Case{"guard_off",
             [](Snapshot& s, Parameters& p) {
               p.remaining_time_guard = false;
               s.elastic[0].remaining_seconds = 1;
             },
             ""},
        Case{"guard_with_the_default_overhead",
             [](Snapshot& s, Parameters& p) {
               p.default_overhead_seconds = 1000;
               s.elastic[0].remaining_seconds = 1000;
             },
             "guard"},
        Case{"gate_refuses",
             [](Snapshot& s, Parameters& p) {
               p.gate = Gate::kBreakEven;
               s.elastic[0].grow_overhead_seconds = 300;
               s.forecast = steady_arrivals(31);
             },
             "gate"},
        Case{"gate_passes",  // e^(−λ·300·2.65/1.65) > 0.6 up to 30 arrivals in 8 h
             [](Snapshot& s, Parameters& p) {
               p.gate = Gate::kBreakEven;
               s.elastic[0].grow_overhead_seconds = 300;
               s.forecast = steady_arrivals(30);
             },
             ""}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(Growth, QueueRuleCanBeOffAndLeavesTheWaitingJobItsGpus) {
  Snapshot snapshot = one_job_one_idle_node();
  snapshot.waiting.emplace_back();
  WaitingJob& waiting = snapshot.waiting[0];
  waiting.job_id = 50;
  waiting.gpus = waiting.gpus_per_node = 4;
  waiting.offers = {{"n3", 8}};
  waiting.usable_nodes = {"n3"};
  Parameters parameters = no_gate();
  parameters.require_empty_queue = false;
  const auto decisions = decide(snapshot, parameters);
  ASSERT_EQ(decisions.size(), 1u) << "the waiting job starts by itself";
  EXPECT_EQ(decisions[0].kind, DecisionKind::kGrow);
  EXPECT_EQ(decisions[0].to_gpus, 8) << "4 of the 8 idle GPUs are the waiting job's";
}

TEST(Growth, FewestGpusFirstAndNoDoubleCounting) {
  Snapshot snapshot = empty_snapshot();
  snapshot.elastic = {elastic(1, 8), elastic(2, 4), elastic(3, 4)};
  for (ElasticJobView& job : snapshot.elastic) job.offers = {{"n3", 8}, {"n4", 8}};
  const auto decisions = decide(snapshot, no_gate());
  ASSERT_EQ(decisions.size(), 3u);
  EXPECT_EQ(decisions[0].job_id, 2u) << "holds 4, and has the smaller id";
  EXPECT_EQ(decisions[0].to_gpus, 16);
  EXPECT_EQ(decisions[1].job_id, 3u);
  EXPECT_EQ(decisions[1].kind, DecisionKind::kGrow);
  EXPECT_EQ(decisions[1].to_gpus, 8) << "4 are left";
  EXPECT_EQ(decisions[2].kind, DecisionKind::kRefuseGrow);
  EXPECT_EQ(decisions[2].rule, "no-idle");
  EXPECT_EQ(taken(decisions[0]) + taken(decisions[1]), 16);
}

TEST(Growth, EntryIsBoundedByTheUsersMax) {
  Snapshot snapshot = one_job_one_idle_node();
  snapshot.elastic[0].max_gpus = 11;
  EXPECT_EQ(decide(snapshot, no_gate())[0].to_gpus, 8);
}

TEST(Growth, GrowsOnFromAGrownSize) {
  Snapshot snapshot = one_job_one_idle_node();
  add_companion(snapshot.elastic[0], 90, "n2", 4);
  const auto decisions = decide(snapshot, no_gate());
  EXPECT_EQ(decisions[0].from_gpus, 8);
  EXPECT_EQ(decisions[0].to_gpus, 16);
}

TEST(Growth, InputsHoldEverythingTheFormulaUsed) {
  Snapshot snapshot = one_job_one_idle_node();
  snapshot.elastic[0].grow_overhead_seconds = 12;
  snapshot.elastic[0].remaining_seconds = 500;
  snapshot.forecast = steady_arrivals(1);
  for (const Gate gate : {Gate::kPrinted, Gate::kBreakEven, Gate::kBreakEvenTakeBack}) {
    Parameters parameters;
    parameters.gate = gate;
    const Decision decision = decide(snapshot, parameters)[0];
    ASSERT_EQ(decision.kind, DecisionKind::kGrow);
    EXPECT_EQ(decision.rule, "gate");
    const auto& in = decision.inputs;
    const double S = in.at("S"), O = in.at("O"), lambda = in.at("lambda"), R = in.at("R");
    EXPECT_EQ(O, 12);
    EXPECT_EQ(R, 500);
    EXPECT_DOUBLE_EQ(lambda, in.at("arrivals") / in.at("T"));
    EXPECT_DOUBLE_EQ(S, in.at("v_new") / in.at("v_now"));
    EXPECT_DOUBLE_EQ(in.at("saved"), R - R / S);
    const double factor = gate == Gate::kPrinted     ? 1 / S
                          : gate == Gate::kBreakEven ? S / (S - 1)
                                                     : (S + 1) / (S - 1);
    EXPECT_DOUBLE_EQ(in.at("P"), std::exp(-lambda * O * factor));
    EXPECT_NE(decision.formula.find("exp(-lambda*O"), std::string::npos);
    EXPECT_NE(decision.formula.find("R - R/S > O"), std::string::npos);
  }
}

// What stays idle after the growth absorbs the arrivals that fit into it.
TEST(Growth, ThinnedForecastIsTakenAtTheMargin) {
  Snapshot snapshot = one_job_one_idle_node();
  snapshot.elastic[0].grow_overhead_seconds = 300;
  snapshot.forecast = {{0.01, 0.005, 0}, 288, 8 * 3600.0};
  const int takes = decide(snapshot, no_gate())[0].to_gpus - 4;
  Parameters parameters;
  parameters.gate = Gate::kBreakEven;
  snapshot.idle_gpus = takes;  // nothing stays idle
  EXPECT_EQ(decide(snapshot, parameters)[0].rule, "gate");
  EXPECT_EQ(decide(snapshot, parameters)[0].inputs.at("lambda"), 0.01);
  snapshot.idle_gpus = takes + 8;
  EXPECT_EQ(decide(snapshot, parameters)[0].inputs.at("lambda"), 0.005);
  snapshot.idle_gpus = takes + 16;
  EXPECT_EQ(decide(snapshot, parameters)[0].kind, DecisionKind::kGrow);
}

// The net benefit may prefer a smaller entry: with 2 entries it leaves more idle, so that arrivals
// do not take it back.
TEST(Growth, NetBenefitWeighsEveryEntry) {
  Snapshot snapshot = one_job_one_idle_node();
  ElasticJobView& job = snapshot.elastic[0];
  job.table = {{4, 1000}, {8, 1900}, {12, 2000}};
  job.grow_overhead_seconds = job.shrink_overhead_seconds = 60;
  job.remaining_seconds = 50'000;
  snapshot.idle_gpus = 8;
  Parameters parameters;
  parameters.gate = Gate::kNetBenefit;
  snapshot.forecast = {{0.02}, 576, 8 * 3600.0};
  EXPECT_EQ(decide(snapshot, parameters)[0].rule, "gate") << "taken back within a minute";
  snapshot.forecast = {{0}, 0, 8 * 3600.0};
  EXPECT_EQ(decide(snapshot, parameters)[0].to_gpus, 12);
  snapshot.forecast = {{0.001, 0}, 29, 8 * 3600.0};
  job.offers = {{"n3", 8}};
  snapshot.idle_gpus = 12;  // 8 stay idle after the small growth, 4 after the large one
  const Decision decision = decide(snapshot, parameters)[0];
  EXPECT_EQ(decision.to_gpus, 8);
  EXPECT_GT(decision.inputs.at("E"), 0);
}

}  // namespace
}  // namespace flextrain::policy
