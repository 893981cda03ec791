// SPDX-License-Identifier: GPL-2.0-or-later
// The database goes away under a running controller: nothing is cancelled for it, nobody grows
// meanwhile, and what is open is in it when it is back.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "engine_fixture.h"
#include "store/connection.h"

namespace flextrain::slurm_plugin {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class EngineStore : public EngineTest {
 protected:
  // A grown job that could grow further, and what must be in the database at the end.
  uint32_t grown() {
    begin(4);
    const uint32_t id = steady_base();
    rig.config.policy.max_growth = 2;
    rig.engine->set_config(rig.config);
    grow(id);
    EXPECT_EQ(held(id), 16);
    rig.config.policy.max_growth = 4;
    rig.engine->set_config(rig.config);
    return id;
  }
  void expect_all_there(uint32_t id, int gpus) {
    EXPECT_EQ(held(id), gpus);
    EXPECT_THAT(rig.cluster.cancelled(), IsEmpty());
    EXPECT_TRUE(rig.store->fault().ok()) << rig.store->fault().message();
    const auto jobs = rig.store->queries().jobs({.active_only = true}).value();
    ASSERT_EQ(jobs.size(), 1u);
    EXPECT_EQ(jobs[0].key.job_id, id);
    const auto companions = rig.store->queries().companions({.active_only = true}).value();
    EXPECT_EQ(companions.size(), rig.cluster.companions().size());
    EXPECT_TRUE(rig.store->queries().scale_table(jobs[0].key).ok());
  }
  void expect_no_growth(uint32_t id) {
    rig.step(10);
    EXPECT_EQ(rig.state(id), "steady");
    EXPECT_NE(rig.engine->live()->diag.at("database_fault"), "");
    EXPECT_EQ(rig.job(id)->hold.rule, "database");
    EXPECT_EQ(rig.cluster.companions().size(), 1u);
  }
  // The growth that was held back, and a restart over what was stored.
  void expect_life_goes_on(uint32_t id) {
    TestAgent agent(rig, id);
    rig.step(10);
    ASSERT_EQ(rig.state(id), "companions-pending");
    rig.start();
    rig.step(1);
    EXPECT_EQ(rig.state(id), "companions-pending");
    EXPECT_EQ(rig.cluster.companions().size(), 3u);
    EXPECT_THAT(rig.cluster.cancelled(), IsEmpty());
  }
};

TEST_F(EngineStore, DeletedWhileInUseItIsMadeAnewWithWhatIsOpen) {
  const uint32_t id = grown();
  const int64_t epoch = rig.engine->epoch();
  for (const char* suffix : {"", "-wal", "-shm", ".lock"}) {
    ::unlink((rig.database() + suffix).c_str());
  }
  rig.engine->set_config([&] {
    ControllerConfig none = rig.config;
    none.policy.cooldown_seconds = 1'000'000;
    return none;
  }());
  rig.step(10);
  expect_all_there(id, 16);
  EXPECT_EQ(rig.engine->epoch(), epoch);  // agents need not register again
  EXPECT_THAT(rig.scalings(), IsEmpty());
  EXPECT_EQ(::access((rig.database() + ".lock").c_str(), F_OK), 0);
  const auto second = store::Store::open({.path = rig.database(), .statfs_magic = std::nullopt});
  EXPECT_THAT(second.status().message(), HasSubstr("only one controller may write it"));
  rig.engine->set_config(rig.config);
  expect_life_goes_on(id);
  EXPECT_GT(rig.engine->epoch(), epoch);
}

TEST_F(EngineStore, DeletedInTheMiddleOfAGrowthTheGrowthGoesThrough) {
  begin(2);
  const uint32_t id = steady_base();
  TestAgent agent(rig, id);
  const auto poll = agent.poll();
  rig.step();
  ASSERT_EQ(rig.state(id), "companions-pending");
  ::unlink(rig.database().c_str());
  rig.step(1);
  ASSERT_EQ(rig.state(id), "companions-pending");
  EXPECT_EQ(rig.store->queries().open_intents()->size(), 1u);
  register_companions();
  ASSERT_TRUE(poll->answered());
  const protocol::Order order = order_of(*poll);
  agent.report(order.order_id, true, order.allocations, 4);
  rig.step(1);
  expect_all_there(id, 16);
  EXPECT_EQ(rig.scalings().back().outcome, "done");
}

TEST_F(EngineStore, ReplacedByAnOlderOneItHoldsWhatIsOpen) {
  const uint32_t id = grown();
  {
    // A database of another life: a job that nobody knows any more.
    auto other =
        store::Store::open({.path = rig.database() + ".old", .statfs_magic = std::nullopt});
    ASSERT_TRUE(other.ok());
    store::ElasticJobRow stale;
    stale.key = {"fake", 4711, 5, 0};
    stale.state = "steady";
    ASSERT_TRUE((*other)->put_job(stale).ok());
  }
  ASSERT_EQ(::rename((rig.database() + ".old").c_str(), rig.database().c_str()), 0);
  rig.stop_growing();
  rig.step(10);
  expect_all_there(id, 16);
  const auto stale = rig.store->queries().latest_job(4711).value();
  EXPECT_EQ(stale.state, "ended");
  EXPECT_THAT(stale.end_reason, HasSubstr("database was away"));
}

TEST_F(EngineStore, OverwrittenWithGarbageItIsMovedAsideAndMadeAnew) {
  const uint32_t id = grown();
  {
    std::fstream file(rig.database(), std::ios::in | std::ios::out | std::ios::binary);
    const std::string garbage(64 << 10, 'x');
    file.write(garbage.data(), static_cast<std::streamsize>(garbage.size()));
    ASSERT_TRUE(file.good());
  }
  rig.stop_growing();
  rig.step(10);
  EXPECT_EQ(held(id), 16);
  EXPECT_THAT(rig.cluster.cancelled(), IsEmpty());
  EXPECT_TRUE(rig.store->fault().ok()) << rig.store->fault().message();
  EXPECT_EQ(rig.store->queries().jobs({.active_only = true})->size(), 1u);
  rig.start();
  rig.step(1);
  EXPECT_EQ(held(id), 16);
}

TEST_F(EngineStore, LockedByAnotherProcessNobodyGrowsUntilItIsNot) {
  const uint32_t id = grown();
  store::Connection other;
  ASSERT_TRUE(other.open(rig.database(), 1000).ok());
  ASSERT_TRUE(other.execute("BEGIN IMMEDIATE").ok());
  expect_no_growth(id);
  EXPECT_THAT(rig.engine->live()->diag.at("database_fault").get<std::string>(),
              HasSubstr("locked by another process"));
  // After the first wait nothing waits again: agents are answered at once.
  const auto begin = std::chrono::steady_clock::now();
  TestAgent agent(rig, id);
  for (int n = 0; n < 50; ++n) agent.progress(n, 1'000'000, 1, 16);
  rig.step(10);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
  ASSERT_TRUE(other.execute("ROLLBACK").ok());
  expect_life_goes_on(id);
}

TEST_F(EngineStore, WhatHappenedMeanwhileIsThereAfterwards) {
  const uint32_t id = grown();
  TestAgent agent(rig, id);
  const auto poll = agent.poll(1);
  store::Connection other;
  ASSERT_TRUE(other.open(rig.database(), 1000).ok());
  ASSERT_TRUE(other.execute("BEGIN IMMEDIATE").ok());
  expect_no_growth(id);
  // Giving back goes on, and a job ends.
  const uint32_t rigid = rig.submit(2002, 24, 3, false);
  rig.step(1);
  ASSERT_EQ(rig.state(id), "shrinking");
  ASSERT_TRUE(poll->answered());
  agent.report(order_of(*poll).order_id, true, order_of(*poll).allocations, 0);
  agent.report(order_of(*poll).order_id, true, order_of(*poll).allocations, 4);
  rig.step(1);
  EXPECT_EQ(rig.cluster.find(rigid).state, JobState::kRunning);
  rig.cluster.finish(id);
  rig.step(1);
  rig.step(1);
  ASSERT_TRUE(other.execute("ROLLBACK").ok());
  rig.step(10);
  rig.step(1);
  EXPECT_EQ(rig.scalings().back().kind, "shrink");
  EXPECT_EQ(rig.scalings().back().outcome, "done");
  EXPECT_EQ(rig.store->queries().latest_job(id)->state, "ended");
  EXPECT_NE(rig.store->queries().latest_job(id)->end_time, 0);
  EXPECT_THAT(rig.store->queries().companions({.active_only = true}).value(), IsEmpty());
  EXPECT_THAT(rig.store->queries().open_intents().value(), IsEmpty());
  EXPECT_EQ(rig.job(id), nullptr);
}

TEST_F(EngineStore, ItsFolderGoneItWaitsForAPlaceToWrite) {
  const uint32_t id = grown();
  for (const char* suffix : {"", "-wal", "-shm", ".lock"}) {
    ::unlink((rig.database() + suffix).c_str());
  }
  ASSERT_EQ(::mkdir(rig.database().c_str(), 0700), 0);  // something is in its place
  expect_no_growth(id);
  expect_no_growth(id);
  EXPECT_THAT(rig.cluster.cancelled(), IsEmpty());
  ASSERT_EQ(::rmdir(rig.database().c_str()), 0);
  rig.step(10);
  EXPECT_TRUE(rig.store->fault().ok()) << rig.store->fault().message();
  EXPECT_EQ(rig.store->queries().jobs({.active_only = true})->size(), 1u);
  EXPECT_EQ(held(id), 16);
}

}  // namespace
}  // namespace flextrain::slurm_plugin
