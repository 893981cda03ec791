// SPDX-License-Identifier: MIT
// A full disk, a killed writer, readers in other threads.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <thread>

#include "tests/store/store_fixture.h"

namespace flextrain::store {
namespace {

class StoreFaultTest : public StoreFixture {};

TEST_F(StoreFaultTest, FullDiskFailsCleanly) {
  open();
  options_.max_pages = 60;
  auto store = open();
  Status status;
  uint32_t stored = 0;
  ElasticJobRow row = full_job(0);
  row.registration = Json{{"filler", std::string(8000, 'x')}};
  while (status.ok() && stored < 1000) {
    row.key.job_id = stored + 1;
    status = store->put_job(row);
    if (status.ok()) ++stored;
  }
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.to_string();
  EXPECT_EQ(store->queries().jobs({})->size(), stored);
  EXPECT_EQ(
      store->record_tick(Json{{"filler", random_text(200000)}}, {refusal(1, 1)}).status().code(),
      StatusCode::kResourceExhausted);
  EXPECT_TRUE(store->queries().decisions({})->empty()) << "the tick left nothing behind";
  // Room again: the store goes on.
  store.reset();
  options_.max_pages = 0;
  store = open();
  EXPECT_EQ(store->open_note(), "");
  EXPECT_EQ(store->queries().jobs({})->size(), stored);
  EXPECT_TRUE(store->record_tick({}, {refusal(1, 1)}).ok());
}

// A writer killed at any moment leaves whole transactions: each one puts a job and its decision.
TEST_F(StoreFaultTest, KilledWriterLeavesWholeTransactions) {
  ASSERT_NE(open(), nullptr);
  for (int round = 0; round < 5; ++round) {
    int ready[2];
    ASSERT_EQ(::pipe(ready), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      auto store = Store::open(options_);
      if (!store.ok()) ::_exit(1);
      for (uint32_t i = 1;; ++i) {
        const uint32_t id = static_cast<uint32_t>(round) * 100000 + i;
        const Status status = (*store)->transaction([&]() -> Status {
          RETURN_IF_ERROR((*store)->put_job(full_job(id)));
          return (*store)->record_tick(Json{{"id", id}}, {refusal(id, i)}).status();
        });
        if (!status.ok()) ::_exit(2);
        if (i == 5 && ::write(ready[1], "x", 1) != 1) ::_exit(3);
      }
    }
    ::close(ready[1]);
    char byte = 0;
    ASSERT_EQ(::read(ready[0], &byte, 1), 1) << "the writer did not get to its fifth transaction";
    ::usleep(static_cast<useconds_t>(round) * 3000);  // another moment each round
    ::kill(child, SIGKILL);
    int wait_status = 0;
    ASSERT_EQ(::waitpid(child, &wait_status, 0), child);
    ::close(ready[0]);
    ASSERT_TRUE(WIFSIGNALED(wait_status));

    auto store = open();
    ASSERT_NE(store, nullptr);
    EXPECT_EQ(store->open_note(), "");
    const auto jobs = store->queries().jobs({.limit = 1000000});
    const auto decisions = store->queries().decisions({.limit = 1000000});
    EXPECT_GE(jobs->size(), 5u);
    EXPECT_EQ(jobs->size(), decisions->size());
    for (const DecisionRow& row : *decisions)
      EXPECT_TRUE(store->queries().snapshot(row.snapshot_id).ok());
  }
}

TEST_F(StoreFaultTest, ReadersOfManyThreads) {
  for (const int64_t magic : {0xEF53LL, 0x6969LL}) {
    options_.statfs_magic = magic;
    options_.busy_timeout_ms = 5000;
    auto store = open();
    auto reader = Reader::open(options_.path);
    ASSERT_TRUE(reader.ok());
    std::atomic<bool> stop{false};
    std::atomic<int> failures{0}, reads{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&] {
        while (!stop) {
          // Within one read() the two listings agree.
          const Status status = (*reader)->read([&](Queries& q) -> Status {
            ASSIGN_OR_RETURN(const auto jobs, q.jobs({}));
            ASSIGN_OR_RETURN(const auto decisions, q.decisions({}));
            if (jobs.size() != decisions.size()) return internal_error("torn read");
            return {};
          });
          if (!status.ok()) ++failures;
          ++reads;
        }
      });
    const uint32_t first = magic == 0x6969 ? 1000 : 0;
    for (uint32_t i = 1; i <= 50; ++i) {
      const Status status = store->transaction([&]() -> Status {
        RETURN_IF_ERROR(store->put_job(full_job(first + i)));
        return store->record_tick({}, {refusal(first + i, i)}).status();
      });
      EXPECT_TRUE(status.ok()) << status.to_string();
    }
    // The writes may be over before a reader had its turn.
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (reads == 0 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    stop = true;
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(failures, 0);
    EXPECT_GT(reads, 0);
  }
}

}  // namespace
}  // namespace flextrain::store
