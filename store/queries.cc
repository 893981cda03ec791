// SPDX-License-Identifier: MIT
// Reader's queries: filters become SQL conditions with bound values.
#include <algorithm>
#include <variant>

#include "store/columns.h"
#include "store/compress.h"
#include "store/store.h"

namespace flextrain::store {
namespace {

// Conditions joined by AND, and the values for their '?'.
class Where {
 public:
  template <typename... Values>
  void add(std::string_view condition, const Values&... values) {
    text_ += text_.empty() ? " WHERE " : " AND ";
    text_ += condition;
    (values_.emplace_back(values), ...);
  }
  // column1 IN (…) [OR column2 IN (…)], nothing for an empty list.
  void add_ids(const std::vector<uint32_t>& ids, std::initializer_list<std::string_view> columns) {
    if (ids.empty()) return;
    std::string list;
    for (const uint32_t id : ids) list += (list.empty() ? "" : ",") + std::to_string(id);
    std::string condition;
    for (const std::string_view column : columns)
      condition += fmt::format("{}{} IN ({})", condition.empty() ? "" : " OR ", column, list);
    add("(" + condition + ")");
  }
  const std::string& text() const { return text_; }
  void bind(Statement& statement) const {
    for (const auto& value : values_) std::visit([&](const auto& v) { statement.bind(v); }, value);
  }

 private:
  std::string text_;
  std::vector<std::variant<int64_t, std::string>> values_;
};

// Newest first up to the limit, then turned round. `read_row(statement, row)` fills one row.
template <typename Row, typename ReadRow>
Result<std::vector<Row>> list(Connection& connection, std::string_view columns,
                              std::string_view table, const Where& where, std::string_view order,
                              int64_t limit, ReadRow&& read_row) {
  Statement statement =
      connection.prepare(fmt::format("SELECT {} FROM {}{} ORDER BY {} LIMIT {}", columns, table,
                                     where.text(), order, std::max<int64_t>(limit, 0)));
  where.bind(statement);
  std::vector<Row> rows;
  for (;;) {
    ASSIGN_OR_RETURN(const bool more, statement.next());
    if (!more) break;
    read_row(statement, rows.emplace_back());
    RETURN_IF_ERROR(statement.finish());
  }
  std::reverse(rows.begin(), rows.end());
  return rows;
}

constexpr int64_t kNoLimit = INT64_MAX;

template <typename Row>
Result<Row> only(Result<std::vector<Row>> rows, std::string_view what) {
  RETURN_IF_ERROR(rows.status());
  if (rows->empty()) return not_found("no {}", what);
  return std::move(rows->back());
}

Where key_where(const JobKey& key) {
  Where where;
  where.add(kKeyMatch, key.cluster, static_cast<int64_t>(key.job_id), key.submit_time,
            static_cast<int64_t>(key.restart_count));
  return where;
}

std::string key_text(const JobKey& key) {
  return fmt::format("job {} (cluster {}, submitted {}, restart {})", key.job_id, key.cluster,
                     key.submit_time, key.restart_count);
}

void read_job(Statement& s, ElasticJobRow& row) { visit_job(row, reader_of(s)); }
void read_companion(Statement& s, CompanionRow& row) { visit_companion(row, reader_of(s)); }
void read_intent(Statement& s, IntentRow& row) { visit_intent(row, reader_of(s)); }
void read_progress(Statement& s, ProgressRow& row) { visit_progress(row, reader_of(s)); }
void read_scaling(Statement& s, ScalingRow& row) {
  s.read(row.id);
  visit_scaling(row, reader_of(s));
}
void read_decision(Statement& s, DecisionRow& row) {
  Json inputs;
  s.read(row.id);
  visit_decision(row, inputs, reader_of(s));
  if (!inputs.is_object()) return;
  for (const auto& [symbol, value] : inputs.items())
    row.inputs[symbol] =
        value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
}

std::string with_id(std::string_view columns) { return "id," + std::string(columns); }

}  // namespace

Result<std::vector<ElasticJobRow>> Queries::jobs(const Filter& filter) {
  Where where;
  where.add_ids(filter.job_ids, {"job_id"});
  if (!filter.user.empty()) where.add("user=?", filter.user);
  if (filter.active_only) where.add("end_time=0");
  if (filter.start > 0) where.add("(end_time=0 OR end_time>=?)", filter.start);
  if (filter.end > 0) where.add("first_seen<=?", filter.end);
  return list<ElasticJobRow>(connection_, kJobColumns, "jobs", where,
                             "first_seen DESC, job_id DESC, restart_count DESC", filter.limit,
                             read_job);
}

Result<ElasticJobRow> Queries::job(const JobKey& key) {
  return only(
      list<ElasticJobRow>(connection_, kJobColumns, "jobs", key_where(key), "job_id", 1, read_job),
      key_text(key));
}

Result<ElasticJobRow> Queries::latest_job(uint32_t job_id) {
  Where where;
  where.add_ids({job_id}, {"job_id"});
  return only(list<ElasticJobRow>(connection_, kJobColumns, "jobs", where,
                                  "submit_time DESC, restart_count DESC", 1, read_job),
              fmt::format("elastic job {}", job_id));
}

Result<std::vector<CompanionRow>> Queries::companions(const Filter& filter) {
  Where where;
  where.add_ids(filter.job_ids, {"base_job_id", "job_id"});
  if (filter.active_only) where.add("end_time=0");
  if (filter.start > 0) where.add("(end_time=0 OR end_time>=?)", filter.start);
  if (filter.end > 0) where.add("submit_time<=?", filter.end);
  if (!filter.user.empty())
    where.add(
        "EXISTS (SELECT 1 FROM jobs j WHERE j.cluster=base_cluster AND j.job_id=base_job_id AND "
        "j.submit_time=base_submit_time AND j.restart_count=base_restart_count AND j.user=?)",
        filter.user);
  return list<CompanionRow>(connection_, kCompanionColumns, "companions", where,
                            "submit_time DESC, job_id DESC", filter.limit, read_companion);
}

Result<std::vector<CompanionRow>> Queries::companions_of(const JobKey& base, bool active_only) {
  Where where;
  where.add("base_cluster=? AND base_job_id=? AND base_submit_time=? AND base_restart_count=?",
            base.cluster, static_cast<int64_t>(base.job_id), base.submit_time,
            static_cast<int64_t>(base.restart_count));
  if (active_only) where.add("end_time=0");
  return list<CompanionRow>(connection_, kCompanionColumns, "companions", where,
                            "submit_time DESC, job_id DESC", kNoLimit, read_companion);
}

Result<std::vector<IntentRow>> Queries::open_intents() {
  return list<IntentRow>(connection_, kIntentColumns, "intents", {}, "created DESC, id DESC",
                         kNoLimit, read_intent);
}

Result<IntentRow> Queries::intent(const std::string& id) {
  Where where;
  where.add("id=?", id);
  return only(list<IntentRow>(connection_, kIntentColumns, "intents", where, "id", 1, read_intent),
              fmt::format("open intent {}", id));
}

Result<std::vector<ScalingRow>> Queries::scalings(const Filter& filter) {
  Where where;
  where.add_ids(filter.job_ids, {"job_id"});
  if (filter.start > 0) where.add("end_time>=?", filter.start);
  if (filter.end > 0) where.add("begin_time<=?", filter.end);
  if (!filter.user.empty())
    where.add(
        "EXISTS (SELECT 1 FROM jobs j WHERE j.cluster=scalings.cluster AND "
        "j.job_id=scalings.job_id AND j.submit_time=scalings.submit_time AND "
        "j.restart_count=scalings.restart_count AND j.user=?)",
        filter.user);
  return list<ScalingRow>(connection_, with_id(kScalingColumns), "scalings", where, "id DESC",
                          filter.limit, read_scaling);
}

Result<std::vector<DecisionRow>> Queries::decisions(const Filter& filter) {
  Where where;
  where.add_ids(filter.job_ids, {"job_id", "for_job"});
  if (!filter.user.empty()) where.add("user=?", filter.user);
  if (filter.start > 0) where.add("last_time>=?", filter.start);
  if (filter.end > 0) where.add("first_time<=?", filter.end);
  return list<DecisionRow>(connection_, with_id(kDecisionColumns), "decisions", where,
                           "last_time DESC, id DESC", filter.limit, read_decision);
}

Result<DecisionRow> Queries::decision(int64_t id) {
  Where where;
  where.add("id=?", id);
  return only(list<DecisionRow>(connection_, with_id(kDecisionColumns), "decisions", where, "id", 1,
                                read_decision),
              fmt::format("decision {}", id));
}

Result<Json> Queries::snapshot(int64_t id) {
  Statement statement = connection_.prepare("SELECT content_zstd FROM snapshots WHERE id=?");
  statement.bind(id);
  ASSIGN_OR_RETURN(const bool found, statement.next());
  if (!found) return not_found("no snapshot {}", id);
  Blob blob;
  statement.read(blob);
  return decompress_json(blob, fmt::format("snapshot {}", id));
}

Result<ScaleTableRow> Queries::scale_table(const JobKey& job) {
  Statement statement = connection_.prepare(
      fmt::format("SELECT time,table_zstd,profile_zstd FROM scale_tables WHERE {}", kKeyMatch));
  bind_key(statement, job);
  ASSIGN_OR_RETURN(const bool found, statement.next());
  if (!found) return not_found("no scale table of {}", key_text(job));
  ScaleTableRow row;
  row.job = job;
  Blob table, profile;
  statement.read(row.time, table, profile);
  ASSIGN_OR_RETURN(row.table, decompress_json(table, "scale table of " + key_text(job)));
  ASSIGN_OR_RETURN(row.profile, decompress_json(profile, "profile of " + key_text(job)));
  return row;
}

Result<ProgressRow> Queries::progress(const JobKey& job) {
  return only(list<ProgressRow>(connection_, kProgressColumns, "progress", key_where(job), "job_id",
                                1, read_progress),
              "progress of " + key_text(job));
}

Result<std::vector<ProgressRow>> Queries::all_progress(bool active_only) {
  Where where;
  if (active_only)
    where.add(
        "EXISTS (SELECT 1 FROM jobs j WHERE j.cluster=progress.cluster AND "
        "j.job_id=progress.job_id AND j.submit_time=progress.submit_time AND "
        "j.restart_count=progress.restart_count AND j.end_time=0)");
  return list<ProgressRow>(connection_, kProgressColumns, "progress", where, "job_id DESC",
                           kNoLimit, read_progress);
}

Result<std::vector<ArrivalRow>> Queries::arrivals_since(int64_t time) {
  Where where;
  where.add("submit_time>=?", time);
  return list<ArrivalRow>(connection_, "cluster,job_id,submit_time,gpus,elastic", "arrivals", where,
                          "submit_time DESC, job_id DESC", kNoLimit,
                          [](Statement& s, ArrivalRow& row) {
                            s.read(row.cluster, row.job_id, row.submit_time, row.gpus, row.elastic);
                          });
}

Result<std::vector<HoldRow>> Queries::holds() {
  return list<HoldRow>(connection_, kHoldColumns, "holds", {}, "time DESC, job_id DESC", kNoLimit,
                       [](Statement& s, HoldRow& row) { visit_hold(row, reader_of(s)); });
}

Result<std::vector<IdleRow>> Queries::idle_since(int64_t time) {
  Where where;
  where.add("partition='' AND time>=?", time);
  return list<IdleRow>(connection_, kIdleColumns, "idle_samples", where, "time DESC", kNoLimit,
                       [](Statement& s, IdleRow& row) { visit_idle(row, reader_of(s)); });
}

Result<std::vector<TideRow>> Queries::tide(int64_t start, int64_t end, int64_t local_offset) {
  Statement select = connection_.prepare(
      "SELECT partition,gres_type,(time+?)/3600%24 AS hour,count(*),avg(total),avg(idle),"
      "avg(expanded),min(idle),max(idle) FROM idle_samples WHERE time>=? AND (?=0 OR time<=?) "
      "GROUP BY partition,gres_type,hour ORDER BY partition,gres_type,hour");
  select.bind(local_offset, start, end, end);
  std::vector<TideRow> rows;
  for (;;) {
    ASSIGN_OR_RETURN(const bool more, select.next());
    if (!more) return rows;
    TideRow& row = rows.emplace_back();
    select.read(row.partition, row.gres_type, row.hour, row.samples, row.total, row.idle,
                row.expanded, row.least_idle, row.most_idle);
    RETURN_IF_ERROR(select.finish());
  }
}

int Queries::schema_version() {
  return static_cast<int>(connection_.integer("PRAGMA user_version").value_or(0));
}

}  // namespace flextrain::store
