// SPDX-License-Identifier: MIT
// Rows written are rows read; coalescing, intents, counters, filters, retention.
#include <cmath>
#include <limits>

#include "tests/store/store_fixture.h"

namespace flextrain::store {
namespace {

class StoreTest : public StoreFixture {};

TEST_F(StoreTest, JobKeepsEveryField) {
  auto store = open();
  const ElasticJobRow in = full_job(7);
  ASSERT_TRUE(store->put_job(in).ok());
  const Result<ElasticJobRow> out = store->queries().job(in.key);
  ASSERT_TRUE(out.ok()) << out.status().to_string();
  EXPECT_EQ(out->key, in.key);
  EXPECT_EQ(out->user, in.user);
  EXPECT_EQ(out->user_id, in.user_id);
  EXPECT_EQ(out->group_id, in.group_id);
  EXPECT_EQ(out->name, in.name);
  EXPECT_EQ(out->account, in.account);
  EXPECT_EQ(out->partition, in.partition);
  EXPECT_EQ(out->mode, in.mode);
  EXPECT_EQ(out->base_gpus, in.base_gpus);
  EXPECT_EQ(out->held_gpus, in.held_gpus);
  EXPECT_EQ(out->max_gpus, in.max_gpus);
  EXPECT_EQ(out->state, in.state);
  EXPECT_EQ(out->state_reason, in.state_reason);
  EXPECT_EQ(out->registered, in.registered);
  EXPECT_EQ(out->fingerprint, in.fingerprint);
  EXPECT_EQ(out->numerics, in.numerics);
  EXPECT_EQ(out->agent_version, in.agent_version);
  EXPECT_EQ(out->agent_path, in.agent_path);
  EXPECT_EQ(out->work_dir, in.work_dir);
  EXPECT_EQ(out->registration, in.registration);
  EXPECT_EQ(out->allocations, in.allocations);
  EXPECT_EQ(out->grow_overhead_seconds, in.grow_overhead_seconds);
  EXPECT_EQ(out->shrink_overhead_seconds, in.shrink_overhead_seconds);
  EXPECT_EQ(out->last_switch_time, in.last_switch_time);
  EXPECT_EQ(out->last_failure_time, in.last_failure_time);
  EXPECT_EQ(out->failures, in.failures);
  EXPECT_EQ(out->plan_id, in.plan_id);
  EXPECT_EQ(out->first_seen, in.first_seen);
  EXPECT_EQ(out->start_time, in.start_time);
  EXPECT_EQ(out->end_time, in.end_time);
  EXPECT_EQ(out->exit_code, in.exit_code);
  EXPECT_EQ(out->end_reason, in.end_reason);
  EXPECT_EQ(out->updated, in.updated);
}

TEST_F(StoreTest, PutReplacesTheSameRunOnly) {
  auto store = open();
  ElasticJobRow row = full_job(7);
  ASSERT_TRUE(store->put_job(row).ok());
  row.held_gpus = 4;
  ASSERT_TRUE(store->put_job(row).ok());
  ElasticJobRow requeued = full_job(7);
  requeued.key.restart_count = 1;
  requeued.held_gpus = 8;
  ASSERT_TRUE(store->put_job(requeued).ok());
  EXPECT_EQ(store->queries().jobs({})->size(), 2u);
  EXPECT_EQ(store->queries().job(row.key)->held_gpus, 4);
  EXPECT_EQ(store->queries().latest_job(7)->held_gpus, 8);
  EXPECT_EQ(store->queries().latest_job(8).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(store->queries().job(key(7, 1000, 9)).status().code(), StatusCode::kNotFound);
}

TEST_F(StoreTest, AbsentJsonStaysNull) {
  auto store = open();
  ElasticJobRow row;
  row.key = key(1);
  ASSERT_TRUE(store->put_job(row).ok());
  EXPECT_TRUE(store->queries().job(row.key)->registration.is_null());
}

TEST_F(StoreTest, JobFilters) {
  auto store = open();
  for (uint32_t id = 1; id <= 4; ++id) {
    ElasticJobRow row = full_job(id);
    row.user = id % 2 ? "anna" : "ben";
    row.first_seen = id * 100;
    row.end_time = id <= 2 ? id * 100 + 50 : 0;
    ASSERT_TRUE(store->put_job(row).ok());
  }
  const auto ids = [&](const Filter& filter) {
    std::vector<uint32_t> found;
    const auto rows = store->queries().jobs(filter);
    for (const auto& row : *rows) found.push_back(row.key.job_id);
    return found;
  };
  using Ids = std::vector<uint32_t>;
  EXPECT_EQ(ids({}), (Ids{1, 2, 3, 4}));
  EXPECT_EQ(ids({.job_ids = {2, 4, 9}}), (Ids{2, 4}));
  EXPECT_EQ(ids({.user = "anna"}), (Ids{1, 3}));
  EXPECT_EQ(ids({.user = "x' OR '1'='1"}), Ids{});
  EXPECT_EQ(ids({.active_only = true}), (Ids{3, 4}));
  EXPECT_EQ(ids({.start = 200}), (Ids{2, 3, 4}));
  EXPECT_EQ(ids({.end = 250}), (Ids{1, 2}));
  EXPECT_EQ(ids({.start = 160, .end = 310}), (Ids{2, 3}));
  EXPECT_EQ(ids({.limit = 2}), (Ids{3, 4})) << "the newest ones, oldest first";
}

TEST_F(StoreTest, Companions) {
  auto store = open();
  ASSERT_TRUE(store->put_job(full_job(7)).ok());
  CompanionRow row;
  row.cluster = "c1";
  row.job_id = 20;
  row.submit_time = 1100;
  row.base = key(7);
  row.intent_id = "i1";
  row.node = "n3";
  row.gpus = 8;
  row.state = "running";
  row.fingerprint = "fp";
  row.registration = {{"role", "companion"}};
  row.start_time = 1101;
  row.lease_end = 1400;
  ASSERT_TRUE(store->put_companion(row).ok());
  CompanionRow ended = row;
  ended.job_id = 21;
  ended.end_time = 1200;
  ended.end_reason = "given back";
  ASSERT_TRUE(store->put_companion(ended).ok());

  EXPECT_EQ(store->queries().companions_of(key(7), true)->size(), 1u);
  EXPECT_EQ(store->queries().companions_of(key(7), false)->size(), 2u);
  EXPECT_EQ(store->queries().companions_of(key(7, 999), false)->size(), 0u);
  EXPECT_EQ(store->queries().companions({.job_ids = {21}})->at(0).end_reason, "given back");
  EXPECT_EQ(store->queries().companions({.job_ids = {7}})->size(), 2u);
  EXPECT_EQ(store->queries().companions({.user = "anna"})->size(), 2u);
  EXPECT_EQ(store->queries().companions({.user = "ben"})->size(), 0u);
  const CompanionRow out = store->queries().companions({.job_ids = {20}})->at(0);
  EXPECT_EQ(out.base, row.base);
  EXPECT_EQ(out.node, "n3");
  EXPECT_EQ(out.lease_end, 1400);
  EXPECT_EQ(out.registration, row.registration);
}

TEST_F(StoreTest, IntentLivesUntilItsScaling) {
  auto store = open();
  IntentRow intent;
  intent.id = "i1";
  intent.job = key(7);
  intent.kind = "grow";
  intent.from_gpus = 4;
  intent.to_gpus = 12;
  intent.stage = "submitted";
  intent.take = Json::array({{{"node", "n2"}, {"gpus", 8}}});
  intent.plan = {{"version", 1}};
  intent.sequence = 5;
  intent.decision_id = 3;
  intent.created = 1000;
  intent.deadline = 1300;
  ASSERT_TRUE(store->put_intent(intent).ok());
  intent.stage = "ordered";
  ASSERT_TRUE(store->put_intent(intent).ok()) << "the same intent moves on";
  IntentRow second = intent;
  second.id = "i2";
  EXPECT_EQ(store->put_intent(second).code(), StatusCode::kAlreadyExists);

  store.reset();  // a crash: what is open is there afterwards
  store = open();
  ASSERT_EQ(store->queries().open_intents()->size(), 1u);
  const IntentRow out = store->queries().open_intents()->at(0);
  EXPECT_EQ(out.stage, "ordered");
  EXPECT_EQ(out.take, intent.take);
  EXPECT_EQ(out.plan, intent.plan);
  EXPECT_EQ(out.sequence, 5);

  ScalingRow scaling;
  scaling.job = key(7);
  scaling.intent_id = "i1";
  scaling.kind = "grow";
  scaling.from_gpus = 4;
  scaling.to_gpus = 12;
  scaling.begin = 1000;
  scaling.end = 1010;
  scaling.outcome = "done";
  scaling.phases.save = 0.5;
  scaling.phases.total = 4.125;
  scaling.decision_id = 3;
  const Result<int64_t> id = store->finish_intent("i1", scaling);
  ASSERT_TRUE(id.ok()) << id.status().to_string();
  EXPECT_TRUE(store->queries().open_intents()->empty());
  ASSERT_EQ(store->queries().scalings({})->size(), 1u);
  EXPECT_EQ(store->queries().scalings({})->at(0).id, *id);
  EXPECT_EQ(store->queries().scalings({})->at(0).phases.total, 4.125);
  EXPECT_EQ(store->finish_intent("i1", scaling).status().code(), StatusCode::kNotFound)
      << "finished once only";
  EXPECT_EQ(store->queries().scalings({})->size(), 1u);
  EXPECT_TRUE(store->put_intent(second).ok());
}

TEST_F(StoreTest, RepeatedNoIsCoalesced) {
  auto store = open();
  const auto tick = [&](int64_t time, std::vector<DecisionRow> rows) {
    const auto ids = store->record_tick(Json{{"now", time}}, rows);
    EXPECT_TRUE(ids.ok()) << ids.status().to_string();
    return ids.value_or({});
  };
  const auto first = tick(100, {refusal(7, 100), refusal(8, 100)});
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(tick(160, {refusal(7, 160)}).at(0), first[0]);
  DecisionRow row = *store->queries().decision(first[0]);
  EXPECT_EQ(row.repeats, 2);
  EXPECT_EQ(row.first_time, 100);
  EXPECT_EQ(row.last_time, 160);
  EXPECT_EQ(row.reason, "P = 0.3 at 160") << "the newest numbers";
  EXPECT_EQ(store->queries().snapshot(row.snapshot_id)->at("now"), 160);
  EXPECT_EQ(store->queries().snapshot(store->queries().decision(first[1])->snapshot_id)->at("now"),
            100)
      << "still referenced by the other job";
  tick(170, {refusal(8, 170)});
  EXPECT_EQ(store->queries().snapshot(1).status().code(), StatusCode::kNotFound)
      << "nobody refers to the first tick any more";

  const auto guard = tick(200, {refusal(7, 200, "guard")});
  EXPECT_NE(guard.at(0), first[0]) << "another rule";
  EXPECT_EQ(tick(210, {refusal(7, 210)}).at(0), first[0]) << "it wavers: one row of each";
  EXPECT_EQ(tick(220, {refusal(7, 220, "guard")}).at(0), guard.at(0));
  EXPECT_EQ(store->queries().decisions({.job_ids = {7}})->back().id, guard.at(0)) << "newest last";
  DecisionRow larger = refusal(7, 230);
  larger.to_gpus = 12;
  EXPECT_EQ(tick(230, {larger}).at(0), first[0]) << "another target";
  EXPECT_EQ(store->queries().decision(first[0])->to_gpus, 12);
  const auto next_hour = tick(100 + 3600, {refusal(7, 100 + 3600)});
  EXPECT_NE(next_hour.at(0), first[0]) << "not for longer than an hour";
  EXPECT_EQ(tick(100'000, {refusal(7, 100'000)}).at(0), next_hour.at(0)) << "nothing came between";
  larger.from_gpus = 8;
  EXPECT_NE(tick(100'001, {larger}).at(0), next_hour.at(0)) << "another size";
  EXPECT_NE(tick(100'002, {refusal(7, 100'002)}).at(0), next_hour.at(0))
      << "it was another between";
  DecisionRow grow = refusal(7, 300);
  grow.kind = "grow";
  const auto grown = tick(300, {grow});
  EXPECT_NE(tick(301, {grow}).at(0), grown.at(0)) << "a yes is never coalesced";
}

TEST_F(StoreTest, RepeatsAreCountedWithoutNewNumbers) {
  auto store = open();
  const int64_t id = store->record_tick(Json{{"now", 100}}, {refusal(7, 100)})->at(0);
  ASSERT_TRUE(store->count_repeats({{id, 5, 150}, {id + 1, 1, 150}}).ok());
  const DecisionRow row = *store->queries().decision(id);
  EXPECT_EQ(row.repeats, 6);
  EXPECT_EQ(row.last_time, 150);
  EXPECT_EQ(row.reason, "P = 0.3 at 100");
  EXPECT_EQ(store->queries().snapshot(row.snapshot_id)->at("now"), 100);
}

TEST_F(StoreTest, AbortsAreCoalescedPerWaitingJob) {
  auto store = open();
  DecisionRow abort = refusal(0, 100, "not-enough");
  abort.job = {};
  abort.kind = "abort";
  abort.for_job = 50;
  DecisionRow other = abort;
  other.for_job = 51;
  const auto first = store->record_tick({}, {abort, other});
  const auto second = store->record_tick({}, {abort, other});
  EXPECT_EQ(*first, *second);
  EXPECT_EQ(store->queries().decision(first->at(1))->repeats, 2);
  EXPECT_EQ(store->queries().decisions({.job_ids = {51}})->size(), 1u);
}

TEST_F(StoreTest, DecisionWithoutFiniteInputs) {
  auto store = open();
  DecisionRow row = refusal(7, 100);
  row.inputs["R"] = std::numeric_limits<double>::infinity();
  const auto ids = store->record_tick({}, {row});
  ASSERT_TRUE(ids.ok());
  EXPECT_TRUE(std::isnan(store->queries().decision(ids->at(0))->inputs.at("R")));
  EXPECT_EQ(store->queries().decision(ids->at(0))->inputs.at("O"), 60.0);
}

TEST_F(StoreTest, NoDecisionsNoSnapshot) {
  auto store = open();
  EXPECT_TRUE(store->record_tick(Json{{"now", 1}}, {})->empty());
  EXPECT_EQ(store->queries().snapshot(1).status().code(), StatusCode::kNotFound);
}

TEST_F(StoreTest, CountersGrowOverRestarts) {
  auto store = open();
  EXPECT_EQ(*store->next_epoch(), 1);
  EXPECT_EQ(*store->next_sequence(), 1);
  EXPECT_EQ(*store->next_sequence(), 2);
  store.reset();
  store = open();
  EXPECT_EQ(*store->next_epoch(), 2);
  EXPECT_EQ(*store->next_sequence(), 3);
  EXPECT_EQ(*store->next_epoch(1000), 1000);
  EXPECT_EQ(*store->next_epoch(1000), 1001);
  EXPECT_EQ(*store->next_epoch(900), 1002);
}

TEST_F(StoreTest, ProgressKeepsTheNewest) {
  auto store = open();
  ASSERT_TRUE(store->put_job(full_job(7)).ok());
  ProgressRow row{key(7), 100, 10, 1000, 2.5, 1e4, 0.5, 8, "plan", "running"};
  ASSERT_TRUE(store->put_progress(row).ok());
  row.time = 90;
  row.step = 9;
  ASSERT_TRUE(store->put_progress(row).ok());
  EXPECT_EQ(store->queries().progress(key(7))->step, 10);
  row.time = 110;
  row.step = 12;
  row.loss = std::nan("");
  ASSERT_TRUE(store->put_progress(row).ok());
  EXPECT_EQ(store->queries().progress(key(7))->step, 12);
  EXPECT_TRUE(std::isnan(store->queries().progress(key(7))->loss));
  EXPECT_EQ(store->queries().all_progress(true)->size(), 1u);
  ElasticJobRow ended = full_job(7);
  ended.end_time = 200;
  ASSERT_TRUE(store->put_job(ended).ok());
  EXPECT_EQ(store->queries().all_progress(true)->size(), 0u);
}

TEST_F(StoreTest, ScaleTableAndArrivals) {
  auto store = open();
  const ScaleTableRow row{key(7), 100, Json{{"entries", Json::array({1, 2})}}, Json{{"steps", 5}}};
  ASSERT_TRUE(store->put_scale_table(row).ok());
  EXPECT_EQ(store->queries().scale_table(key(7))->table, row.table);
  EXPECT_EQ(store->queries().scale_table(key(7))->profile, row.profile);
  EXPECT_EQ(store->queries().scale_table(key(8)).status().code(), StatusCode::kNotFound);

  ASSERT_TRUE(store->record_arrivals({{"c1", 1, 100, 8, false}, {"c1", 2, 200, 16, true}}).ok());
  ASSERT_TRUE(store->record_arrivals({{"c1", 2, 200, 99, true}, {"c1", 1, 300, 4, false}}).ok());
  const auto arrivals = store->queries().arrivals_since(150);
  ASSERT_EQ(arrivals->size(), 2u) << "job id 1 was used again";
  EXPECT_EQ(arrivals->at(0).gpus, 16) << "the known one is left as it is";
}

TEST_F(StoreTest, IdleSamplesAndTheirTide) {
  const auto store = open();
  constexpr int64_t kMidnight = 86400 * 20000;
  std::vector<IdleRow> rows;
  for (const int64_t hour : {3, 27, 12}) {  // 3 o'clock twice
    const int idle = hour == 27 ? 10 : 20;
    rows.push_back({"c1", kMidnight + hour * 3600, "", "", 64, idle, 4});
    rows.push_back({"c1", kMidnight + hour * 3600, "gpu", "a100", 32, idle, 2});
  }
  ASSERT_TRUE(store->record_idle(rows).ok());
  ASSERT_TRUE(store->record_idle(rows).ok()) << "again: replaced";
  const auto since = store->queries().idle_since(kMidnight + 12 * 3600).value();
  ASSERT_EQ(since.size(), 2u);
  EXPECT_EQ(since[0].time, kMidnight + 12 * 3600) << "by time";
  EXPECT_EQ(since[0].idle, 20);
  EXPECT_EQ(since[0].total, 64);
  EXPECT_EQ(since[0].expanded, 4);
  const auto tide = store->queries().tide(0, 0, 3600).value();
  ASSERT_EQ(tide.size(), 4u);
  EXPECT_EQ(tide[0].partition, "");
  EXPECT_EQ(tide[2].partition, "gpu");
  EXPECT_EQ(tide[2].gres_type, "a100");
  EXPECT_EQ(tide[2].hour, 4) << "the local clock is an hour ahead";
  EXPECT_EQ(tide[2].samples, 2);
  EXPECT_DOUBLE_EQ(tide[2].idle, 15);
  EXPECT_DOUBLE_EQ(tide[2].expanded, 2);
  EXPECT_EQ(tide[2].least_idle, 10);
  EXPECT_EQ(tide[2].most_idle, 20);
  EXPECT_EQ(tide[3].hour, 13);
  EXPECT_EQ(store->queries().tide(kMidnight, kMidnight + 13 * 3600, 0)->size(), 4u);
  EXPECT_EQ(store->queries().tide(kMidnight + 20 * 3600, 0, 0)->size(), 2u);
  ASSERT_TRUE(store->run_retention(kMidnight + 86400 * 3, {.days = 2}).ok());
  EXPECT_EQ(store->queries().idle_since(0)->size(), 1u);
}

TEST_F(StoreTest, TransactionIsAllOrNothing) {
  auto store = open();
  const Status status = store->transaction([&]() -> Status {
    RETURN_IF_ERROR(store->put_job(full_job(7)));
    RETURN_IF_ERROR(store->record_tick({}, {refusal(7, 1)}).status());
    return aborted("on purpose");
  });
  EXPECT_EQ(status.code(), StatusCode::kAborted);
  EXPECT_TRUE(store->queries().jobs({})->empty());
  EXPECT_TRUE(store->queries().decisions({})->empty());
  EXPECT_TRUE(store->transaction([&] { return store->put_job(full_job(7)); }).ok());
  EXPECT_EQ(store->queries().jobs({})->size(), 1u);
}

TEST_F(StoreTest, RetentionForgetsOnlyWhatIsOver) {
  constexpr int64_t kDay = 24 * 3600;
  const int64_t now = 1000 * kDay;
  auto store = open();
  ElasticJobRow old_running = full_job(1), old_ended = full_job(2), new_ended = full_job(3);
  old_running.first_seen = old_ended.first_seen = now - 50 * kDay;
  old_ended.end_time = now - 31 * kDay;
  new_ended.end_time = now - 29 * kDay;
  for (const auto& row : {old_running, old_ended, new_ended}) {
    ASSERT_TRUE(store->put_job(row).ok());
    ASSERT_TRUE(store->put_scale_table({row.key, now - 40 * kDay, Json{{"a", 1}}, {}}).ok());
    ASSERT_TRUE(
        store->put_progress({row.key, now - 40 * kDay, 1, 2, 0, 0, 0, 4, "", "running"}).ok());
  }
  ASSERT_TRUE(store->record_tick(Json{{"t", "old"}}, {refusal(1, now - 40 * kDay)}).ok());
  ASSERT_TRUE(store->record_tick(Json{{"t", "new"}}, {refusal(3, now - kDay)}).ok());
  ASSERT_TRUE(
      store
          ->record_arrivals({{"c1", 5, now - 40 * kDay, 8, false}, {"c1", 6, now - kDay, 8, false}})
          .ok());

  EXPECT_TRUE(*store->retention_if_due(now, {.days = 30}));
  EXPECT_FALSE(*store->retention_if_due(now + kDay - 1, {.days = 30}));
  EXPECT_TRUE(*store->retention_if_due(now - 10, {.days = 30})) << "the clock was set back";

  EXPECT_EQ(store->queries().jobs({})->size(), 2u);
  EXPECT_EQ(store->queries().latest_job(2).status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(store->queries().scale_table(key(1)).ok()) << "still running";
  EXPECT_FALSE(store->queries().scale_table(key(2)).ok());
  EXPECT_FALSE(store->queries().progress(key(2)).ok());
  ASSERT_EQ(store->queries().decisions({})->size(), 1u);
  EXPECT_FALSE(store->queries().snapshot(1).ok());
  EXPECT_EQ(store->queries().snapshot(2)->at("t"), "new");
  EXPECT_EQ(store->queries().arrivals_since(0)->size(), 1u);
  EXPECT_EQ(store->run_retention(now, {.days = 0}).code(), StatusCode::kInvalidArgument);
}

TEST_F(StoreTest, RetentionGivesPagesBack) {
  auto store = open();
  for (uint32_t i = 1; i <= 300; ++i) {
    ElasticJobRow row = full_job(i);
    row.registration = Json{{"filler", std::string(4000, 'x')}};
    row.end_time = 2000;
    ASSERT_TRUE(store->put_job(row).ok());
  }
  store.reset();
  const auto before = std::filesystem::file_size(options_.path);
  store = open();
  ASSERT_TRUE(store->run_retention(1000 * 24 * 3600, {.days = 30}).ok());
  store.reset();
  EXPECT_LT(std::filesystem::file_size(options_.path), before / 4);
}

TEST_F(StoreTest, ReaderSeesWhatIsCommitted) {
  auto store = open();
  ASSERT_TRUE(store->put_job(full_job(1)).ok());
  auto reader = Reader::open(options_.path);
  ASSERT_TRUE(reader.ok()) << reader.status().to_string();
  const auto count = [&] { return (*reader)->read([](Queries& q) { return q.jobs({}); })->size(); };
  EXPECT_EQ(count(), 1u);
  ASSERT_TRUE(store
                  ->transaction([&]() -> Status {
                    RETURN_IF_ERROR(store->put_job(full_job(2)));
                    EXPECT_EQ(count(), 1u) << "not committed yet";
                    return {};
                  })
                  .ok());
  EXPECT_EQ(count(), 2u);
  EXPECT_EQ(Reader::open(folder_ + "/none").status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace flextrain::store
