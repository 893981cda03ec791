// SPDX-License-Identifier: GPL-2.0-or-later
// What is written of a round's decisions, and when.
#include "slurm_plugin/controller/decision_log.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <optional>
#include <set>

#include "tests/temp_folder.h"

namespace flextrain::slurm_plugin {
namespace {

constexpr int64_t kDue = DecisionLog::kRefreshSeconds;
constexpr int64_t kStart = 1'000 * kDue;  // a refresh falls due at every multiple

class DecisionLogTest : public ::testing::Test {
 protected:
  DecisionLogTest() {
    auto opened = store::Store::open({.path = folder_.path("db"), .statfs_magic = std::nullopt});
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    store_ = std::move(opened).value();
    log_.emplace(*store_);
  }

  static store::DecisionRow refusal(uint32_t job, std::string rule, int64_t now) {
    store::DecisionRow row;
    row.job = {"c", job, 100, 0};
    row.kind = "refuse";
    row.rule = std::move(rule);
    row.reason = "as of " + std::to_string(now);
    row.from_gpus = row.to_gpus = 8;
    row.first_time = row.last_time = now;
    return row;
  }
  // The jobs are refused by their rules; the ids.
  std::vector<int64_t> round(int64_t now,
                             std::vector<std::pair<uint32_t, std::string>> jobs_and_rules) {
    std::vector<store::DecisionRow> rows;
    for (auto& [job, rule] : jobs_and_rules) rows.push_back(refusal(job, rule, now));
    return record(now, std::move(rows));
  }
  std::vector<int64_t> record(int64_t now, std::vector<store::DecisionRow> rows) {
    const auto ids = log_->record(
        [&] {
          ++snapshots_;
          return Json{{"now", now}};
        },
        std::move(rows), now);
    EXPECT_TRUE(ids.ok()) << ids.status().message();
    return ids.value_or({});
  }
  store::DecisionRow row(int64_t id) { return store_->queries().decision(id).value(); }
  // A stored row's numbers and its snapshot are of one moment.
  void expect_as_of(int64_t id, int64_t when) {
    EXPECT_EQ(row(id).reason, "as of " + std::to_string(when));
    EXPECT_EQ(store_->queries().snapshot(row(id).snapshot_id).value().at("now"), when);
  }

  TempFolder folder_;
  std::unique_ptr<store::Store> store_;
  std::optional<DecisionLog> log_;
  int snapshots_ = 0;
};

TEST_F(DecisionLogTest, ARepeatedRefusalIsWrittenOnceInAWhile) {
  const int64_t id = round(kStart + 1, {{7, "gate"}}).at(0);
  for (int64_t now = kStart + 5; now < kStart + kDue; now += 5) {
    EXPECT_EQ(round(now, {{7, "gate"}}).at(0), id);
  }
  EXPECT_EQ(snapshots_, 1) << "nothing new, nothing written";
  EXPECT_EQ(row(id).repeats, 1);
  expect_as_of(id, kStart + 1);
  const int64_t due = kStart + kDue + 1;
  EXPECT_EQ(round(due, {{7, "gate"}}).at(0), id);
  EXPECT_EQ(snapshots_, 2);
  EXPECT_EQ(row(id).repeats, 7);
  EXPECT_EQ(row(id).first_time, kStart + 1);
  EXPECT_EQ(row(id).last_time, due);
  expect_as_of(id, due);
}

TEST_F(DecisionLogTest, AllJobsAreRefreshedInOneRound) {
  round(kStart + 1, {{7, "gate"}});
  round(kStart + 11, {{7, "gate"}, {8, "guard"}});
  round(kStart + 21, {{7, "gate"}, {8, "guard"}, {9, "at-max"}});
  snapshots_ = 0;
  const auto ids = round(kStart + kDue, {{7, "gate"}, {8, "guard"}, {9, "at-max"}});
  EXPECT_EQ(snapshots_, 1);
  EXPECT_EQ(row(ids[0]).snapshot_id, row(ids[2]).snapshot_id);
  EXPECT_EQ(row(ids[0]).repeats, 4);
  EXPECT_EQ(row(ids[2]).repeats, 2);
}

TEST_F(DecisionLogTest, AnotherRuleIsWrittenAtOnceAndTheOldOneGetsItsCount) {
  const int64_t first = round(kStart, {{7, "gate"}}).at(0);
  round(kStart + 10, {{7, "gate"}});
  round(kStart + 20, {{7, "gate"}});
  const int64_t second = round(kStart + 30, {{7, "queue-not-empty"}}).at(0);
  EXPECT_NE(second, first);
  EXPECT_EQ(row(first).repeats, 3);
  EXPECT_EQ(row(first).last_time, kStart + 20);
  expect_as_of(first, kStart);
  expect_as_of(second, kStart + 30);
  store::DecisionRow larger = refusal(7, "queue-not-empty", kStart + 40);
  larger.from_gpus = larger.to_gpus = 16;
  EXPECT_NE(record(kStart + 40, {larger}).at(0), second) << "another size";
}

TEST_F(DecisionLogTest, AJobThatWaversIsWrittenOnceInAWhileForEachRule) {
  std::set<int64_t> ids;
  const auto turn = [](int64_t now) { return now % 2 == 0 ? "gate" : "no-idle"; };
  for (int64_t now = kStart; now < kStart + 100 * kDue; ++now) {
    ids.insert(round(now, {{7, turn(now)}}).at(0));
  }
  EXPECT_LE(snapshots_, 200);
  round(kStart + 102 * kDue, {});
  ASSERT_EQ(ids.size(), 2u) << "one row of each";
  EXPECT_EQ(row(*ids.begin()).repeats + row(*ids.rbegin()).repeats, 100 * kDue);
  for (const int64_t id : ids) {
    const auto now = store_->queries().snapshot(row(id).snapshot_id).value().at("now");
    EXPECT_EQ(row(id).reason, fmt::format("as of {}", now.get<int64_t>()));
    EXPECT_EQ(row(id).rule, turn(now));
    EXPECT_GE(row(id).last_time - now.get<int64_t>(), 0);
    EXPECT_LE(row(id).last_time - now.get<int64_t>(), kDue);
  }
  EXPECT_EQ(store_->queries().decisions({})->back().last_time, kStart + 100 * kDue - 1);
}

TEST_F(DecisionLogTest, AGrowthIsAlwaysWrittenAndEndsTheCount) {
  const int64_t first = round(kStart, {{7, "gate"}}).at(0);
  round(kStart + 10, {{7, "gate"}});
  store::DecisionRow grow = refusal(7, "gate", kStart + 20);
  grow.kind = "grow";
  const int64_t second = record(kStart + 20, {grow}).at(0);
  const int64_t third = record(kStart + 21, {grow}).at(0);
  EXPECT_NE(second, third);
  EXPECT_EQ(row(first).repeats, 2);
  EXPECT_NE(round(kStart + 30, {{7, "gate"}}).at(0), first)
      << "the refusal after it is another one";
}

TEST_F(DecisionLogTest, WhoIsGoneGetsHisCount) {
  const int64_t id = round(kStart, {{7, "gate"}}).at(0);
  round(kStart + 10, {{7, "gate"}});
  snapshots_ = 0;
  EXPECT_TRUE(round(kStart + kDue, {}).empty());
  EXPECT_EQ(row(id).repeats, 2);
  EXPECT_EQ(row(id).last_time, kStart + 10);
  EXPECT_EQ(snapshots_, 0) << "a count needs none";
  EXPECT_NE(round(kStart + kDue + 1, {{8, "gate"}}).at(0), id);
}

TEST_F(DecisionLogTest, AbortsAreCountedPerWaitingJob) {
  const auto abort = [](uint32_t waiting, int64_t now) {
    store::DecisionRow row = refusal(0, "not-enough", now);
    row.job = {};
    row.kind = "abort";
    row.for_job = waiting;
    return row;
  };
  const auto first = record(kStart, {abort(50, kStart), abort(51, kStart)});
  const auto again = record(kStart + 5, {abort(50, kStart + 5), abort(51, kStart + 5)});
  EXPECT_EQ(first, again);
  EXPECT_NE(first[0], first[1]);
  EXPECT_EQ(snapshots_, 1);
}

TEST_F(DecisionLogTest, AClockThatIsSetBackHoldsNothingUp) {
  const int64_t id = round(kStart, {{7, "gate"}}).at(0);
  round(kStart + 10, {{7, "gate"}});
  EXPECT_EQ(round(kStart - 3600, {{7, "gate"}}).at(0), id);
  EXPECT_EQ(row(id).repeats, 3);
  EXPECT_EQ(snapshots_, 2);
}

TEST_F(DecisionLogTest, ANewControllerGoesOnCounting) {
  const int64_t id = round(kStart, {{7, "gate"}}).at(0);
  log_.emplace(*store_);
  EXPECT_EQ(round(kStart + 10, {{7, "gate"}}).at(0), id);
  EXPECT_EQ(row(id).repeats, 2);
}

}  // namespace
}  // namespace flextrain::slurm_plugin
