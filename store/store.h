// SPDX-License-Identifier: MIT
// store: the controller's memory, one SQLite database. Owns the schema (sql/NNN_*.sql, compiled
// into the library), the file and its side files; no SQL exists outside this folder, and only this
// folder includes sqlite3.h.
//
// Two classes. Store writes (and reads); it is NOT thread-safe: the one writer thread that opened
// it uses it, and it holds `<path>.lock` as long as it lives, so that no second controller writes.
// Reader has a read-only connection of its own and may be called from any thread (calls take
// turns); it sees what is committed.
//
// Errors. kUnavailable: locked by another process, or an I/O error; trying again may help.
// kResourceExhausted: disk full. kDataLoss: damaged content. kFailedPrecondition: the database is
// of a newer release or of another cluster. kNotFound: the named row does not exist. A failing call
// changes nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "store/rows.h"

namespace flextrain::store {

class Connection;  // store/connection.h

// Whether statfs(2)'s f_type names a file system on which SQLite's WAL is unsafe (shared memory
// does not reach other hosts): NFS, SMB, Lustre, GPFS, CephFS, FUSE and the like.
bool is_network_file_system(int64_t statfs_magic);

struct OpenOptions {
  std::string path;  // parent folder must exist; the file gets mode 0600
  // Whose database it is to be, from its first open() on; "" = nobody asks.
  std::string cluster = {};
  int busy_timeout_ms = 2000;
  std::optional<int64_t> statfs_magic;  // tests: instead of asking statfs
  int64_t max_pages = 0;  // tests: makes the disk "full" at so many pages; 0 = no bound
};

// What a database must hold to go on from: everything that is open, and what could not be written.
struct OpenState {
  std::vector<ElasticJobRow> jobs;
  std::vector<CompanionRow> companions;
  std::vector<IntentRow> intents;
  std::vector<HoldRow> holds;
  std::vector<ScaleTableRow> tables;
  std::vector<ScalingRow> scalings;
  int64_t epoch = 0, sequence = 0, now = 0;
};

struct Retention {
  int days =
      90;  // ended jobs, their companions and scalings, decisions, arrivals, idle samples older
};

// Read path: every listing of the store. Listings come oldest first.
class Queries {
 public:
  explicit Queries(Connection& connection) : connection_(connection) {}

  Result<std::vector<ElasticJobRow>> jobs(const Filter& filter);
  Result<ElasticJobRow> job(const JobKey& key);
  // The newest run of that job id, kNotFound when there is none.
  Result<ElasticJobRow> latest_job(uint32_t job_id);
  Result<std::vector<CompanionRow>> companions(const Filter& filter);  // job_ids: base or own
  Result<std::vector<CompanionRow>> companions_of(const JobKey& base, bool active_only);
  Result<std::vector<IntentRow>> open_intents();
  Result<IntentRow> intent(const std::string& id);
  Result<std::vector<ScalingRow>> scalings(const Filter& filter);
  Result<std::vector<DecisionRow>> decisions(const Filter& filter);
  Result<DecisionRow> decision(int64_t id);
  Result<Json> snapshot(int64_t id);
  Result<ScaleTableRow> scale_table(const JobKey& job);
  Result<ProgressRow> progress(const JobKey& job);
  Result<std::vector<ProgressRow>> all_progress(bool active_only);
  Result<std::vector<ArrivalRow>> arrivals_since(int64_t time);
  Result<std::vector<HoldRow>> holds();
  // The whole cluster's samples since then, by time.
  Result<std::vector<IdleRow>> idle_since(int64_t time);
  // Samples of [start, end] (0 = no bound) by partition, GPU type and hour of the day, the local
  // clock being `local_offset` seconds ahead of UTC.
  Result<std::vector<TideRow>> tide(int64_t start, int64_t end, int64_t local_offset);
  int schema_version();

 private:
  Connection& connection_;
};

class Reader {
 public:
  static Result<std::unique_ptr<Reader>> open(const std::string& path, int busy_timeout_ms = 5000);
  ~Reader();
  // Runs `body` with the connection to itself; all it reads is of one moment.
  // auto rows = reader->read([&](Queries& q) { return q.jobs(filter); });
  template <typename Body>
  auto read(Body&& body) -> decltype(body(std::declval<Queries&>())) {
    Guard guard(*this);
    return body(guard.queries);
  }

 private:
  struct Guard {
    explicit Guard(Reader& reader);
    ~Guard();
    Reader& reader;
    Queries queries;
  };
  struct Impl;
  explicit Reader(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

class Store {
 public:
  // Opens or creates the database: takes `<path>.lock`, quick_check, migrations, journal mode by
  // file system. A damaged one is renamed to `<path>.corrupt-<UTC time>` and a new one is begun;
  // open_note() then says so. kUnavailable when another process holds it.
  static Result<std::unique_ptr<Store>> open(const OpenOptions& options);
  ~Store();

  const std::string& open_note() const;  // "" or what happened at open, one line for the log
  std::string journal_mode() const;      // "wal" or "delete"
  Queries& queries();

  // A database that did not take a write (locked, full, read-only, damaged, gone) is not asked
  // again: every later write fails at once with the same words, until heal() or reopen(). OK
  // otherwise.
  const Status& fault() const;
  // Whether the database is still the file at its path. kDataLoss when it was deleted or replaced
  // or is no database any more: reopen(). Takes a deleted lock file again. Cheap; not over a lock.
  Status check_file();
  // After a fault: writes, and takes writes again when that works. Waits little.
  Status heal();
  // Closes, and opens what is at the path now, or begins a new database; what is damaged is moved
  // aside as by open(). generation() then is another, and Readers see the old file.
  Status reopen();
  int64_t generation() const;
  // In one transaction: `state` is what is open, and nothing else is.
  Status restore(const OpenState& state);

  // Runs `body` in one transaction: all of its calls or none take effect. Nested calls are part of
  // the outermost one, which an inner failure must be returned to.
  Status transaction(const std::function<Status()>& body);

  // Counters, both strictly growing over the life of the database. An epoch is `at_least` that:
  // with the time of day it also grows beyond those of a database that was lost.
  Result<int64_t> next_epoch(int64_t at_least = 1);  // once per controller start
  Result<int64_t> next_sequence();                   // once per order

  // Inserts or replaces the row with that key.
  Status put_job(const ElasticJobRow& row);
  Status put_companion(const CompanionRow& row);
  Status put_progress(const ProgressRow& row);  // only when newer than what is there
  Status put_scale_table(const ScaleTableRow& row);
  // kAlreadyExists when the job has another open intent.
  Status put_intent(const IntentRow& row);
  // Deletes the intent and stores the history row, in one transaction; returns the scaling's id.
  // kNotFound when the intent is not open (it was finished before: the caller need do nothing).
  Result<int64_t> finish_intent(const std::string& intent_id, const ScalingRow& row);

  // Stores one tick: the snapshot (once, compressed; only when there are decisions) and the
  // decisions that refer to it. A refusal ("refuse" of a job, "abort" for a waiting job) that was
  // stored before with the same kind, rule, for_job and from, with nothing but refusals since, and
  // whose row is the newest or began within the hour, takes that row: it gets the new reason,
  // formula, inputs, target, snapshot and last_time, its repeats count up by the new row's. A
  // snapshot nobody refers to any more is dropped; takes first_time and last_time from the rows.
  // Returns the ids, in order.
  Result<std::vector<int64_t>> record_tick(const Json& snapshot,
                                           const std::vector<DecisionRow>& decisions);

  // Refusals that were repeated with nothing new in them: count and last time, while reason,
  // numbers and snapshot stay those of the last time they were stored. Rows that are gone are left
  // out.
  Status count_repeats(const std::vector<Repeats>& repeats);

  // A decision that belongs to no tick: a command of a person.
  Result<int64_t> record_decision(const DecisionRow& row);
  Status put_hold(const HoldRow& row);
  Status remove_hold(const HoldRow& row);  // by its key; absent is fine

  // Arrivals already known (same cluster, job id, submit time) are left as they are.
  Status record_arrivals(const std::vector<ArrivalRow>& rows);
  Status record_idle(const std::vector<IdleRow>& rows);  // one already known is replaced

  // Deletes what is older and gives pages back. run_retention always; retention_if_due at most once
  // a day (the time of the last run is in the database), true when it ran.
  Status run_retention(int64_t now, const Retention& retention);
  Result<bool> retention_if_due(int64_t now, const Retention& retention);

 private:
  struct Impl;
  explicit Store(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace flextrain::store
