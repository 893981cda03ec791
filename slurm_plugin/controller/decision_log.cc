// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm_plugin/controller/decision_log.h"

#include <utility>

namespace flextrain::slurm_plugin {

DecisionLog::About DecisionLog::about(const store::DecisionRow& row) {
  return {row.job.job_id, row.job.submit_time, row.job.restart_count,
          row.job.job_id == 0 ? row.for_job : 0};
}

DecisionLog::What DecisionLog::what(const store::DecisionRow& row) {
  return {row.kind, row.rule, row.from_gpus};
}

// By the clock, not by each row's age: all fall due together. Also when it was set back.
bool DecisionLog::refresh_due(int64_t written, int64_t now) {
  return now / kRefreshSeconds != written / kRefreshSeconds;
}

Result<std::vector<int64_t>> DecisionLog::record(const std::function<Json()>& snapshot,
                                                 std::vector<store::DecisionRow> rows,
                                                 int64_t now) {
  std::vector<int64_t> ids(rows.size(), 0);
  std::vector<store::DecisionRow> written;
  std::vector<size_t> places;           // of `written` in `rows`
  std::vector<store::Repeats> repeats;  // of rows that get no new numbers
  const auto count = [&](const Said& said) {
    if (said.since.count > 0) repeats.push_back(said.since);
  };
  for (size_t at = 0; at < rows.size(); ++at) {
    store::DecisionRow& row = rows[at];
    const auto told = said_.find(about(row));
    if (told != said_.end() && !store::is_refusal(row)) {  // whatever is refused later is news
      for (const auto& [what, said] : told->second) count(said);
      said_.erase(told);
    } else if (told != said_.end()) {
      const auto found = told->second.find(what(row));
      if (found != told->second.end()) {
        Said& said = found->second;
        if (!refresh_due(said.written, now)) {
          if (said.since.count++ == 0) said.since_first = now;
          said.since.last_time = now;
          ids[at] = said.since.id;
          continue;
        }
        row.repeats += said.since.count;
        if (said.since.count > 0) row.first_time = said.since_first;
        told->second.erase(found);
      }
    }
    places.push_back(at);
    written.push_back(std::move(row));
  }
  // What nobody was told this time.
  for (auto told = said_.begin(); told != said_.end();) {
    std::erase_if(told->second, [&](const auto& entry) {
      if (!refresh_due(entry.second.written, now)) return false;
      count(entry.second);
      return true;
    });
    told = told->second.empty() ? said_.erase(told) : std::next(told);
  }
  if (written.empty() && repeats.empty()) return ids;
  std::vector<int64_t> given;
  const Status status = store_.transaction([&]() -> Status {
    RETURN_IF_ERROR(store_.count_repeats(repeats));
    if (written.empty()) return {};
    ASSIGN_OR_RETURN(given, store_.record_tick(snapshot(), written));
    return {};
  });
  if (!status.ok()) {
    forget();  // the counts are lost; the database knows what was said
    return status;
  }
  for (size_t i = 0; i < written.size(); ++i) {
    const store::DecisionRow& row = written[i];
    ids[places[i]] = given[i];
    if (!store::is_refusal(row)) continue;
    said_[about(row)][what(row)] = {.written = now, .since = {.id = given[i]}};
  }
  return ids;
}

}  // namespace flextrain::slurm_plugin
