// SPDX-License-Identifier: MIT
#include "store/store.h"

#include "base/log.h"
#include "store/columns.h"
#include "store/compress.h"
#include "store/connection.h"
#include "store/open_database.h"
#include "store/store_impl.h"
#include "store/writer_lock.h"

namespace flextrain::store {
namespace {

Status put(Connection& connection, std::string_view table, std::string_view columns,
           const std::function<void(Statement&)>& bind) {
  Statement statement = connection.prepare(replace_statement("INSERT OR REPLACE", table, columns));
  bind(statement);
  return statement.run();
}

// NaN and infinity have no JSON; null keeps the symbol visible.
Json inputs_json(const std::map<std::string, double>& inputs) {
  Json json = Json::object();
  for (const auto& [symbol, value] : inputs) json[symbol] = value;
  return json;
}

// A job that wavers between two refusals makes one row of each an hour, not one a change.
constexpr int64_t kRowSpanSeconds = 3600;

struct Stored {
  int64_t id = 0, snapshot_id = 0;
};

// The row that a refusal repeats; id 0 = none. What a job (of an abort, which has none: the waiting
// job) was told since it was last told anything else: the newest of these rows, however old, or one
// that began within the hour.
Result<Stored> repeated_refusal(Connection& connection, const DecisionRow& row) {
  constexpr int kMost = 16;  // more rules than one size of a job meets within an hour
  Statement statement = connection.prepare(
      fmt::format("SELECT id,snapshot_id,kind,rule,from_gpus,for_job,first_time FROM decisions "
                  "WHERE {}{} ORDER BY id DESC LIMIT {}",
                  kKeyMatch, row.job.job_id == 0 ? " AND for_job=?" : "", kMost));
  bind_key(statement, row.job);
  if (row.job.job_id == 0) statement.bind(row.for_job);
  for (bool newest = true;; newest = false) {
    ASSIGN_OR_RETURN(const bool found, statement.next());
    if (!found) return Stored{};
    Stored stored;
    DecisionRow old;
    statement.read(stored.id, stored.snapshot_id, old.kind, old.rule, old.from_gpus, old.for_job,
                   old.first_time);
    RETURN_IF_ERROR(statement.finish());
    if (!is_refusal(old) || old.from_gpus != row.from_gpus) return Stored{};
    if (old.kind == row.kind && old.rule == row.rule && old.for_job == row.for_job)
      return newest || row.last_time - old.first_time < kRowSpanSeconds ? stored : Stored{};
  }
}

Status drop_if_unreferenced(Connection& connection, int64_t snapshot_id) {
  Statement statement = connection.prepare(
      "DELETE FROM snapshots WHERE id=? AND NOT EXISTS (SELECT 1 FROM decisions WHERE "
      "snapshot_id=?)");
  statement.bind(snapshot_id, snapshot_id);
  return statement.run();
}

Result<int64_t> insert_decision(Connection& connection, const DecisionRow& row) {
  const Json inputs = inputs_json(row.inputs);
  if (is_refusal(row)) {
    ASSIGN_OR_RETURN(const Stored old, repeated_refusal(connection, row));
    if (old.id != 0) {
      Statement update = connection.prepare(
          "UPDATE decisions SET reason=?,formula=?,inputs_json=?,to_gpus=?,snapshot_id=?,"
          "last_time=?,repeats=repeats+? WHERE id=?");
      update.bind(row.reason, row.formula, inputs, row.to_gpus, row.snapshot_id, row.last_time,
                  row.repeats, old.id);
      RETURN_IF_ERROR(update.run());
      RETURN_IF_ERROR(drop_if_unreferenced(connection, old.snapshot_id));
      return old.id;
    }
  }
  Statement insert = connection.prepare(replace_statement("INSERT", "decisions", kDecisionColumns));
  visit_decision(row, inputs, binder(insert));
  RETURN_IF_ERROR(insert.run());
  return connection.last_insert_id();
}

Result<int64_t> next_value(Connection& connection, const std::string& key, int64_t at_least = 1) {
  Statement update = connection.prepare("UPDATE meta SET value=MAX(value+1,?) WHERE key=?");
  update.bind(at_least);
  update.bind(key);
  RETURN_IF_ERROR(update.run());
  return connection.integer(fmt::format("SELECT value FROM meta WHERE key='{}'", key));
}

}  // namespace

Status put_scaling(Connection& connection, const ScalingRow& row) {
  Statement insert = connection.prepare(replace_statement("INSERT", "scalings", kScalingColumns));
  visit_scaling(row, binder(insert));
  return insert.run();
}

Store::Store(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Store::~Store() = default;

Result<std::unique_ptr<Store>> Store::open(const OpenOptions& options) {
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  RETURN_IF_ERROR(impl->lock.acquire(options.path + ".lock", options.path));
  RETURN_IF_ERROR(open_database(options, impl->connection, impl->note));
  RETURN_IF_ERROR(impl->remember_file());
  if (!impl->note.empty()) log_error("store: {}", impl->note);
  return std::unique_ptr<Store>(new Store(std::move(impl)));
}

const std::string& Store::open_note() const { return impl_->note; }
Queries& Store::queries() { return impl_->queries; }
std::string Store::journal_mode() const {
  return impl_->connection.text("PRAGMA journal_mode").value_or("unknown");
}

Status Store::transaction(const std::function<Status()>& body) {
  return impl_->guarded([&] { return impl_->in_one_transaction(body); });
}

Result<int64_t> Store::next_epoch(int64_t at_least) {
  int64_t value = 0;
  RETURN_IF_ERROR(transaction([&]() -> Status {
    ASSIGN_OR_RETURN(value, next_value(impl_->connection, "epoch", at_least));
    return {};
  }));
  return value;
}

Result<int64_t> Store::next_sequence() {
  int64_t value = 0;
  RETURN_IF_ERROR(transaction([&]() -> Status {
    ASSIGN_OR_RETURN(value, next_value(impl_->connection, "sequence"));
    return {};
  }));
  return value;
}

Status Store::put_job(const ElasticJobRow& row) {
  return impl_->guarded([&] {
    return put(impl_->connection, "jobs", kJobColumns,
               [&](Statement& s) { visit_job(row, binder(s)); });
  });
}

Status Store::put_companion(const CompanionRow& row) {
  return impl_->guarded([&] {
    return put(impl_->connection, "companions", kCompanionColumns,
               [&](Statement& s) { visit_companion(row, binder(s)); });
  });
}

Status Store::put_progress(const ProgressRow& row) {
  // An older sample that was delayed must not hide a newer one.
  std::string update;
  for (const std::string_view column : {"time", "step", "total_steps", "loss", "tokens_per_second",
                                        "step_seconds", "gpus", "plan_id", "state"})
    update += fmt::format("{}{}=excluded.{}", update.empty() ? "" : ",", column, column);
  return impl_->guarded([&] {
    Statement statement = impl_->connection.prepare(fmt::format(
        "{} ON CONFLICT ({}) DO UPDATE SET {} WHERE excluded.time>=time",
        replace_statement("INSERT", "progress", kProgressColumns), kKeyColumns, update));
    visit_progress(row, binder(statement));
    return statement.run();
  });
}

Status Store::put_scale_table(const ScaleTableRow& row) {
  ASSIGN_OR_RETURN(const Blob table, compress_json(row.table));
  ASSIGN_OR_RETURN(const Blob profile, compress_json(row.profile));
  return impl_->guarded([&] {
    return put(impl_->connection, "scale_tables",
               fmt::format("{},time,table_zstd,profile_zstd", kKeyColumns), [&](Statement& s) {
                 bind_key(s, row.job);
                 s.bind(row.time, table, profile);
               });
  });
}

Status Store::put_intent(const IntentRow& row) {
  return impl_->guarded([&]() -> Status {
    Statement other = impl_->connection.prepare(
        fmt::format("SELECT id FROM intents WHERE {} AND id<>?", kKeyMatch));
    bind_key(other, row.job);
    other.bind(row.id);
    ASSIGN_OR_RETURN(const bool found, other.next());
    if (found) {
      std::string id;
      other.read(id);
      return already_exists("job {} already has the open intent {}", row.job.job_id, id);
    }
    return put(impl_->connection, "intents", kIntentColumns,
               [&](Statement& s) { visit_intent(row, binder(s)); });
  });
}

Result<int64_t> Store::finish_intent(const std::string& intent_id, const ScalingRow& row) {
  int64_t id = 0;
  RETURN_IF_ERROR(transaction([&]() -> Status {
    Statement remove = impl_->connection.prepare("DELETE FROM intents WHERE id=?");
    remove.bind(intent_id);
    RETURN_IF_ERROR(remove.run());
    if (impl_->connection.changes() == 0) return not_found("no open intent {}", intent_id);
    RETURN_IF_ERROR(put_scaling(impl_->connection, row));
    id = impl_->connection.last_insert_id();
    return {};
  }));
  return id;
}

Result<std::vector<int64_t>> Store::record_tick(const Json& snapshot,
                                                const std::vector<DecisionRow>& decisions) {
  std::vector<int64_t> ids;
  if (decisions.empty()) return ids;
  ASSIGN_OR_RETURN(const Blob content, compress_json(snapshot));
  RETURN_IF_ERROR(transaction([&]() -> Status {
    Statement insert = impl_->connection.prepare("INSERT INTO snapshots (content_zstd) VALUES (?)");
    insert.bind(content);
    RETURN_IF_ERROR(insert.run());
    const int64_t snapshot_id = impl_->connection.last_insert_id();
    for (DecisionRow row : decisions) {
      row.snapshot_id = snapshot_id;
      ASSIGN_OR_RETURN(const int64_t id, insert_decision(impl_->connection, row));
      ids.push_back(id);
    }
    return {};
  }));
  return ids;
}

Status Store::count_repeats(const std::vector<Repeats>& repeats) {
  if (repeats.empty()) return {};
  return transaction([&]() -> Status {
    for (const Repeats& row : repeats) {
      Statement update = impl_->connection.prepare(
          "UPDATE decisions SET repeats=repeats+?,last_time=MAX(last_time,?) WHERE id=?");
      update.bind(row.count, row.last_time, row.id);
      RETURN_IF_ERROR(update.run());
    }
    return {};
  });
}

Result<int64_t> Store::record_decision(const DecisionRow& row) {
  int64_t id = 0;
  RETURN_IF_ERROR(impl_->guarded([&]() -> Status {
    ASSIGN_OR_RETURN(id, insert_decision(impl_->connection, row));
    return {};
  }));
  return id;
}

Status Store::put_hold(const HoldRow& row) {
  return impl_->guarded([&] {
    return put(impl_->connection, "holds", kHoldColumns,
               [&](Statement& s) { visit_hold(row, binder(s)); });
  });
}

Status Store::remove_hold(const HoldRow& row) {
  return impl_->guarded([&] {
    Statement remove = impl_->connection.prepare(
        "DELETE FROM holds WHERE cluster=? AND job_id=? AND submit_time=?");
    remove.bind(row.cluster, row.job_id, row.submit_time);
    return remove.run();
  });
}

Status Store::record_idle(const std::vector<IdleRow>& rows) {
  if (rows.empty()) return {};
  return transaction([&]() -> Status {
    for (const IdleRow& row : rows) {
      Statement insert = impl_->connection.prepare(
          replace_statement("INSERT OR REPLACE", "idle_samples", kIdleColumns));
      visit_idle(row, binder(insert));
      RETURN_IF_ERROR(insert.run());
    }
    return {};
  });
}

Status Store::record_arrivals(const std::vector<ArrivalRow>& rows) {
  if (rows.empty()) return {};
  return transaction([&]() -> Status {
    for (const ArrivalRow& row : rows) {
      Statement insert = impl_->connection.prepare(replace_statement(
          "INSERT OR IGNORE", "arrivals", "cluster,job_id,submit_time,gpus,elastic"));
      insert.bind(row.cluster, row.job_id, row.submit_time, row.gpus, row.elastic);
      RETURN_IF_ERROR(insert.run());
    }
    return {};
  });
}

}  // namespace flextrain::store
