// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm_plugin/controller/query_handler.h"

#include <pwd.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "base/json_number.h"
#include "slurm_plugin/controller/snapshot.h"
#include "slurm_plugin/controller/table_view.h"
#include "slurm_plugin/controller/weighed.h"

namespace flextrain::slurm_plugin {
namespace {

using KeyTuple = std::tuple<std::string, uint32_t, int64_t, int>;
KeyTuple tuple_of(const store::JobKey& key) {
  return {key.cluster, key.job_id, key.submit_time, key.restart_count};
}

// "" when the uid has no name.
std::string name_of(uid_t uid) {
  passwd entry{};
  passwd* found = nullptr;
  std::vector<char> buffer(16384);
  if (getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found) != 0 || found == nullptr) {
    return "";
  }
  return found->pw_name;
}

struct Asked {
  store::Filter filter;
  std::string kind;
  int64_t id = 0;
};

Result<Asked> read_filter(const Json& json) {
  return decode_json("filter", [&] {
    Asked asked;
    if (json.is_null()) {
      asked.filter.active_only = true;
      return asked;
    }
    if (json.contains("job")) asked.filter.job_ids = whole_numbers<uint32_t>(json.at("job"));
    asked.filter.user = json.value("user", std::string());
    asked.filter.start = whole_number_or(json, "start", int64_t{0});
    asked.filter.end = whole_number_or(json, "end", int64_t{0});
    asked.filter.active_only = !json.value("all", false);
    asked.filter.limit =
        std::clamp<int64_t>(whole_number_or(json, "limit", int64_t{10000}), 1, 100000);
    asked.kind = json.value("kind", std::string());
    asked.id = whole_number_or(json, "id", int64_t{0});
    return asked;
  });
}

// One query's view of the store, narrowed to what the caller may see.
class Answer {
 public:
  Answer(const QueryCaller& caller, store::Queries& queries, const LiveState& live, int64_t now)
      : caller_(caller), queries_(queries), live_(live), now_(now) {}

  Result<Json> jobs(Asked asked) {
    narrow(asked.filter);
    ASSIGN_OR_RETURN(const auto rows, queries_.jobs(asked.filter));
    std::map<KeyTuple, store::ProgressRow> progress;
    ASSIGN_OR_RETURN(auto samples, queries_.all_progress(asked.filter.active_only));
    for (store::ProgressRow& sample : samples) {
      progress[tuple_of(sample.job)] = std::move(sample);
    }
    std::map<KeyTuple, std::array<int, 3>> counts;  // grows, shrinks, failures
    store::Filter all;
    all.job_ids = asked.filter.job_ids;
    all.limit = 100000;
    ASSIGN_OR_RETURN(const auto scalings, queries_.scalings(all));
    for (const store::ScalingRow& scaling : scalings) {
      auto& count = counts[tuple_of(scaling.job)];
      ++count[scaling.outcome != "done" ? 2 : scaling.kind == "grow" ? 0 : 1];
    }
    Json list = Json::array();
    for (const store::ElasticJobRow& row : rows) {
      if (!visible(row.user_id)) continue;
      const auto sample = progress.find(tuple_of(row.key));
      list.push_back(job_json(row, sample == progress.end() ? nullptr : &sample->second,
                              counts[tuple_of(row.key)]));
    }
    return list;
  }

  Result<Json> decisions(Asked asked) {
    narrow(asked.filter);
    asked.filter.active_only = false;
    ASSIGN_OR_RETURN(const auto rows, queries_.decisions(asked.filter));
    ASSIGN_OR_RETURN(const auto outcomes, outcome_by_decision(asked.filter));
    Json list = Json::array();
    for (const store::DecisionRow& row : rows) {
      if (!asked.kind.empty() && row.kind != asked.kind) continue;
      if (!visible(row)) continue;
      const auto outcome = outcomes.find(row.id);
      list.push_back(decision_json(row, outcome == outcomes.end() ? "" : outcome->second));
    }
    return list;
  }

  Result<Json> explain(const Asked& asked) {
    if (asked.id <= 0) return invalid_argument("explain needs the id of a decision");
    const auto found = queries_.decision(asked.id);
    if (!found.ok() && found.status().code() != StatusCode::kNotFound) return found.status();
    if (!found.ok() || !visible(*found)) return not_found("there is no decision {}", asked.id);
    const store::DecisionRow& row = *found;
    store::Filter filter;
    if (row.job.job_id != 0) filter.job_ids = {row.job.job_id};
    filter.limit = 100000;
    ASSIGN_OR_RETURN(const auto outcomes, outcome_by_decision(filter));
    const auto outcome = outcomes.find(row.id);
    Json json = decision_json(row, outcome == outcomes.end() ? "" : outcome->second);
    json["formula"] = row.formula;
    json["inputs"] = row.inputs;
    json["take"] = row.take.is_null() ? Json::array() : row.take;
    json["give_back"] = row.give_back.is_null() ? Json::array() : row.give_back;
    json["scaling"] = nullptr;
    ASSIGN_OR_RETURN(const auto scalings, queries_.scalings(filter));
    for (const store::ScalingRow& scaling : scalings) {
      if (scaling.decision_id == row.id) json["scaling"] = scaling_json(scaling);
    }
    json["snapshot"] = nullptr;
    if (row.snapshot_id != 0) {
      auto snapshot = queries_.snapshot(row.snapshot_id);
      if (snapshot.ok()) {
        json.update(weighed_json(row, *snapshot, caller_.admin));
        if (caller_.admin) json["snapshot"] = std::move(snapshot).value();
      }
    }
    return Json::array({std::move(json)});
  }

  Result<Json> table(const Asked& asked) {
    if (asked.filter.job_ids.size() != 1) return invalid_argument("table needs one job id");
    const uint32_t job_id = asked.filter.job_ids.front();
    const auto job = queries_.latest_job(job_id);
    if (!job.ok() && job.status().code() != StatusCode::kNotFound) return job.status();
    if (!job.ok() || !visible(job->user_id)) {
      return not_found("there is no elastic job {}", job_id);
    }
    const auto stored = queries_.scale_table(job->key);
    if (!stored.ok()) {
      if (stored.status().code() != StatusCode::kNotFound) return stored.status();
      return not_found("job {} has no scale table yet: the trainer makes it after its first steps",
                       job_id);
    }
    ASSIGN_OR_RETURN(const TableView view, read_scale_table(stored->table));
    const double base = view.tokens_per_second(job->base_gpus);
    return decode_json("scale table", [&] {
      Json list = Json::array();
      for (Json entry : stored->table.at("entries")) {
        const int gpus = whole_number<int>(entry.at("shape").at("gpus"));
        entry["job_id"] = job_id;
        entry["current"] = gpus == job->held_gpus && job->end_time == 0;
        entry["base"] = gpus == job->base_gpus;
        entry["base_tokens_per_second"] = base;
        list.push_back(std::move(entry));
      }
      return list;
    });
  }

  Result<Json> companions(Asked asked) {
    narrow(asked.filter);
    ASSIGN_OR_RETURN(const auto rows, queries_.companions(asked.filter));
    Json list = Json::array();
    for (const store::CompanionRow& row : rows) {
      const Owner owner = owner_of(row.base);
      if (!caller_.admin && owner.uid != caller_.uid) continue;
      list.push_back({{"job_id", row.job_id},
                      {"base_job_id", row.base.job_id},
                      {"user", owner.name},
                      {"node", row.node},
                      {"gpus", row.gpus},
                      {"state", row.state},
                      {"start", row.start_time},
                      {"lease_end", row.lease_end},
                      {"end", row.end_time},
                      {"fingerprint", row.fingerprint},
                      {"intent_id", row.intent_id},
                      {"end_reason", row.end_reason}});
    }
    return list;
  }

  Result<Json> idle() { return *live_.idle; }
  Result<Json> tide(const Asked& asked) {
    ASSIGN_OR_RETURN(const auto rows, queries_.tide(asked.filter.start, asked.filter.end,
                                                    local_offset_seconds(now_)));
    Json list = Json::array();
    for (const store::TideRow& row : rows) {
      list.push_back({{"partition", row.partition},
                      {"gres_type", row.gres_type},
                      {"hour", row.hour},
                      {"samples", row.samples},
                      {"total", row.total},
                      {"idle", row.idle},
                      {"expanded", row.expanded},
                      {"least_idle", row.least_idle},
                      {"most_idle", row.most_idle}});
    }
    return list;
  }
  Result<Json> diag() { return Json::array({live_.diag}); }

 private:
  struct Owner {
    uid_t uid = static_cast<uid_t>(-1);
    std::string name;
  };

  bool visible(uint32_t owner) const { return caller_.admin || owner == caller_.uid; }
  bool visible(const store::DecisionRow& row) {
    if (caller_.admin) return true;
    return row.job.job_id != 0 && owner_of(row.job).uid == caller_.uid;
  }

  Owner owner_of(const store::JobKey& key) {
    const auto known = owners_.find(tuple_of(key));
    if (known != owners_.end()) return known->second;
    Owner owner;
    if (const auto job = queries_.job(key); job.ok()) owner = {job->user_id, job->user};
    return owners_[tuple_of(key)] = owner;
  }

  // Before the limit counts, leave out what the caller may not see anyway.
  void narrow(store::Filter& filter) const {
    if (caller_.admin || !filter.user.empty()) return;
    filter.user = name_of(caller_.uid);
  }

  Result<std::map<int64_t, std::string>> outcome_by_decision(store::Filter filter) {
    std::map<int64_t, std::string> outcomes;
    filter.start = filter.end = 0;  // a scaling may end after its decision's window
    filter.limit = 100000;
    ASSIGN_OR_RETURN(const auto scalings, queries_.scalings(filter));
    for (const store::ScalingRow& scaling : scalings) {
      outcomes[scaling.decision_id] = scaling.outcome;
    }
    ASSIGN_OR_RETURN(const auto intents, queries_.open_intents());
    for (const store::IntentRow& intent : intents) outcomes[intent.decision_id] = "open";
    outcomes.erase(0);
    return outcomes;
  }

  Json job_json(const store::ElasticJobRow& row, const store::ProgressRow* progress,
                const std::array<int, 3>& counts) const {
    Json hosts = Json::array();
    if (row.end_time == 0 && row.allocations.is_array()) {
      for (const Json& allocation : row.allocations) {
        hosts.push_back({{"node", allocation.value("host", std::string())},
                         {"gpus", allocation.value("gpus", 0)},
                         {"job_id", allocation.value("job_id", 0u)}});
      }
    }
    Json json = {{"job_id", row.key.job_id},
                 {"user", row.user},
                 {"name", row.name},
                 {"partition", row.partition},
                 {"mode", row.mode},
                 {"state", row.state},
                 {"state_reason", row.state_reason},
                 {"hold", ""},
                 {"hold_reason", ""},
                 {"base_gpus", row.base_gpus},
                 {"held_gpus", row.end_time == 0 ? row.held_gpus : 0},
                 {"max_gpus", row.max_gpus},
                 {"hosts", hosts},
                 {"step", 0},
                 {"total_steps", 0},
                 {"loss", nullptr},
                 {"tokens_per_second", nullptr},
                 {"remaining_seconds", nullptr},
                 {"progress_time", 0},
                 {"grows", counts[0]},
                 {"shrinks", counts[1]},
                 {"failures", counts[2]},
                 {"grow_overhead_seconds", row.grow_overhead_seconds},
                 {"shrink_overhead_seconds", row.shrink_overhead_seconds},
                 {"submit", row.key.submit_time},
                 {"start", row.start_time},
                 {"end", row.end_time},
                 {"restart_count", row.key.restart_count},
                 {"plan_id", row.plan_id},
                 {"fingerprint", row.fingerprint},
                 {"numerics", row.numerics},
                 {"agent_version", row.agent_version},
                 {"cluster", row.key.cluster}};
    for (const auto& [key, hold] : live_.holds) {
      if (row.end_time != 0 || !(key == row.key)) continue;
      json["hold"] = hold.rule;
      json["hold_reason"] = hold.reason;
    }
    if (progress == nullptr) return json;
    json["step"] = progress->step;
    json["total_steps"] = progress->total_steps;
    json["loss"] = progress->loss;
    json["tokens_per_second"] = progress->tokens_per_second;
    json["progress_time"] = progress->time;
    if (row.end_time == 0 && progress->total_steps > 0 && progress->step_seconds > 0) {
      const double left =
          static_cast<double>(progress->total_steps - progress->step) * progress->step_seconds -
          static_cast<double>(now_ - progress->time);
      json["remaining_seconds"] = std::max(0.0, left);
    }
    return json;
  }

  static Json decision_json(const store::DecisionRow& row, const std::string& outcome) {
    return {{"id", row.id},
            {"job_id", row.job.job_id},
            {"user", row.user},
            {"for_job", row.for_job},
            {"kind", row.kind},
            {"rule", row.rule},
            {"reason", row.reason},
            {"from_gpus", row.from_gpus},
            {"to_gpus", row.to_gpus},
            {"first_time", row.first_time},
            {"last_time", row.last_time},
            {"repeats", row.repeats},
            {"snapshot_id", row.snapshot_id},
            {"outcome", outcome}};
  }

  static Json scaling_json(const store::ScalingRow& row) {
    return {{"begin", row.begin},
            {"end", row.end},
            {"outcome", row.outcome},
            {"reason", row.reason},
            {"phases",
             {{"companions", row.phases.companions},
              {"save", row.phases.save},
              {"stop", row.phases.stop},
              {"launch", row.phases.launch},
              {"load", row.phases.load},
              {"first_step", row.phases.first_step},
              {"total", row.phases.total}}}};
  }

  const QueryCaller& caller_;
  store::Queries& queries_;
  const LiveState& live_;
  const int64_t now_;
  std::map<KeyTuple, Owner> owners_;
};

Result<Json> rows_for(const std::string& what, const Asked& asked, Answer& answer) {
  if (what == "jobs") return answer.jobs(asked);
  if (what == "decisions") return answer.decisions(asked);
  if (what == "explain") return answer.explain(asked);
  if (what == "table") return answer.table(asked);
  if (what == "companions") return answer.companions(asked);
  if (what == "idle") return answer.idle();
  if (what == "tide") return answer.tide(asked);
  if (what == "diag") return answer.diag();
  return invalid_argument("there is no query '{}'", what);
}

}  // namespace

Result<Json> answer_query(const protocol::QueryRequest& request, const QueryCaller& caller,
                          store::Queries& queries, const LiveState& live, int64_t now) {
  ASSIGN_OR_RETURN(const Asked asked, read_filter(request.filter));
  Answer answer(caller, queries, live, now);
  ASSIGN_OR_RETURN(Json rows, rows_for(request.what, asked, answer));
  return Json{{"rows", std::move(rows)}};
}

}  // namespace flextrain::slurm_plugin
