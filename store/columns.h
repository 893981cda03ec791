// SPDX-License-Identifier: MIT
// The column lists of each table and how a row is bound to and read from them, in one order.
// Private to store/.
#pragma once

#include "store/connection.h"
#include "store/rows.h"

namespace flextrain::store {

// visit(row, f) calls f with the fields in the order of kColumns; `Row` may be const.
template <typename Row, typename Visitor>
void visit_job(Row& r, Visitor&& f) {
  f(r.key.cluster, r.key.job_id, r.key.submit_time, r.key.restart_count, r.user, r.user_id,
    r.group_id, r.name, r.account, r.partition, r.mode, r.base_gpus, r.held_gpus, r.max_gpus,
    r.state, r.state_reason, r.registered, r.fingerprint, r.numerics, r.agent_version, r.agent_path,
    r.work_dir, r.registration, r.allocations, r.grow_overhead_seconds, r.shrink_overhead_seconds,
    r.last_switch_time, r.last_failure_time, r.failures, r.plan_id, r.first_seen, r.start_time,
    r.end_time, r.exit_code, r.end_reason, r.updated);
}
inline constexpr std::string_view kJobColumns =
    "cluster,job_id,submit_time,restart_count,user,user_id,group_id,name,account,partition,mode,"
    "base_gpus,held_gpus,max_gpus,state,state_reason,registered,fingerprint,numerics,agent_version,"
    "agent_path,work_dir,registration_json,allocations_json,grow_overhead,shrink_overhead,"
    "last_switch_time,last_failure_time,failures,plan_id,first_seen,start_time,end_time,exit_code,"
    "end_reason,updated";

template <typename Row, typename Visitor>
void visit_companion(Row& r, Visitor&& f) {
  f(r.cluster, r.job_id, r.submit_time, r.base.cluster, r.base.job_id, r.base.submit_time,
    r.base.restart_count, r.intent_id, r.node, r.gpus, r.state, r.fingerprint, r.registration,
    r.start_time, r.lease_end, r.end_time, r.end_reason);
}
inline constexpr std::string_view kCompanionColumns =
    "cluster,job_id,submit_time,base_cluster,base_job_id,base_submit_time,base_restart_count,"
    "intent_id,node,gpus,state,fingerprint,registration_json,start_time,lease_end,end_time,"
    "end_reason";

template <typename Row, typename Visitor>
void visit_intent(Row& r, Visitor&& f) {
  f(r.id, r.job.cluster, r.job.job_id, r.job.submit_time, r.job.restart_count, r.kind, r.for_job,
    r.from_gpus, r.to_gpus, r.stage, r.take, r.give_back, r.plan, r.sequence, r.decision_id,
    r.created, r.deadline, r.updated);
}
inline constexpr std::string_view kIntentColumns =
    "id,cluster,job_id,submit_time,restart_count,kind,for_job,from_gpus,to_gpus,stage,take_json,"
    "give_back_json,plan_json,sequence,decision_id,created,deadline,updated";

// Without the id, which the store gives.
template <typename Row, typename Visitor>
void visit_scaling(Row& r, Visitor&& f) {
  f(r.job.cluster, r.job.job_id, r.job.submit_time, r.job.restart_count, r.intent_id, r.kind,
    r.for_job, r.from_gpus, r.to_gpus, r.begin, r.end, r.outcome, r.reason, r.phases.companions,
    r.phases.save, r.phases.stop, r.phases.launch, r.phases.load, r.phases.first_step,
    r.phases.total, r.decision_id);
}
inline constexpr std::string_view kScalingColumns =
    "cluster,job_id,submit_time,restart_count,intent_id,kind,for_job,from_gpus,to_gpus,begin_time,"
    "end_time,outcome,reason,companions_seconds,save_seconds,stop_seconds,launch_seconds,"
    "load_seconds,first_step_seconds,total_seconds,decision_id";

// Without the id; `inputs` is the JSON of r.inputs.
template <typename Row, typename Inputs, typename Visitor>
void visit_decision(Row& r, Inputs& inputs, Visitor&& f) {
  f(r.job.cluster, r.job.job_id, r.job.submit_time, r.job.restart_count, r.user, r.for_job, r.kind,
    r.rule, r.reason, r.formula, r.from_gpus, r.to_gpus, inputs, r.take, r.give_back, r.snapshot_id,
    r.first_time, r.last_time, r.repeats);
}
inline constexpr std::string_view kDecisionColumns =
    "cluster,job_id,submit_time,restart_count,user,for_job,kind,rule,reason,formula,from_gpus,"
    "to_gpus,inputs_json,take_json,give_back_json,snapshot_id,first_time,last_time,repeats";

template <typename Row, typename Visitor>
void visit_progress(Row& r, Visitor&& f) {
  f(r.job.cluster, r.job.job_id, r.job.submit_time, r.job.restart_count, r.time, r.step,
    r.total_steps, r.loss, r.tokens_per_second, r.step_seconds, r.gpus, r.plan_id, r.state);
}
inline constexpr std::string_view kProgressColumns =
    "cluster,job_id,submit_time,restart_count,time,step,total_steps,loss,tokens_per_second,"
    "step_seconds,gpus,plan_id,state";

template <typename Row, typename Visitor>
void visit_idle(Row& r, Visitor&& f) {
  f(r.cluster, r.time, r.partition, r.gres_type, r.total, r.idle, r.expanded);
}
inline constexpr std::string_view kIdleColumns =
    "cluster,time,partition,gres_type,total,idle,expanded";

template <typename Row, typename Visitor>
void visit_hold(Row& r, Visitor&& f) {
  f(r.cluster, r.job_id, r.submit_time, r.user_id, r.user, r.by_operator, r.time);
}
inline constexpr std::string_view kHoldColumns =
    "cluster,job_id,submit_time,user_id,user,operator,time";

inline constexpr std::string_view kKeyColumns = "cluster,job_id,submit_time,restart_count";
inline constexpr std::string_view kKeyMatch =
    "cluster=? AND job_id=? AND submit_time=? AND restart_count=?";
inline void bind_key(Statement& statement, const JobKey& key) {
  statement.bind(key.cluster, key.job_id, key.submit_time, key.restart_count);
}

// The fields in order to a statement's parameters, and from its columns.
inline auto binder(Statement& statement) {
  return [&statement](const auto&... values) { statement.bind(values...); };
}
inline auto reader_of(Statement& statement) {
  return [&statement](auto&... values) { statement.read(values...); };
}

// "INSERT OR REPLACE INTO table (columns) VALUES (?,?,…)".
inline std::string replace_statement(std::string_view verb, std::string_view table,
                                     std::string_view columns) {
  std::string marks = "?";
  for (const char c : columns)
    if (c == ',') marks += ",?";
  return fmt::format("{} INTO {} ({}) VALUES ({})", verb, table, columns, marks);
}

}  // namespace flextrain::store
