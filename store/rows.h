// SPDX-License-Identifier: MIT
// The rows of the store, typed. All times are unix seconds (0 = not known / not yet); durations are
// seconds; Json fields are opaque to the store (null when absent). Plain data, no behaviour.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"

namespace flextrain::store {

// A job is the same job only when all four agree (ids are reused, requeues restart). The same four
// fields as protocol::JobIdentity; store depends on base alone.
struct JobKey {
  std::string cluster;
  uint32_t job_id = 0;
  int64_t submit_time = 0;
  int restart_count = 0;
  bool operator==(const JobKey&) const = default;
};

// One run of an elastic job, and all that a restarted controller needs to go on with it.
struct ElasticJobRow {
  JobKey key;
  std::string user;  // name
  uint32_t user_id = 0, group_id = 0;
  std::string name, account, partition;
  std::string mode;  // "pp", "dp+pp"
  int base_gpus = 0, held_gpus = 0, max_gpus = 0;
  std::string state;         // a state of the controller's machine; the store does not interpret it
  std::string state_reason;  // "" or one sentence for people
  // Registration of the base agent.
  bool registered = false;
  std::string fingerprint, numerics = "exact";
  std::string agent_version, agent_path, work_dir;
  Json registration;  // the whole RegisterRequest body, opaque
  Json allocations;   // what the trainer uses now, protocol Allocation[], opaque
  // Overheads as measured by the agent; 0 = not measured yet.
  double grow_overhead_seconds = 0, shrink_overhead_seconds = 0;
  int64_t last_switch_time = 0, last_failure_time = 0;
  int failures = 0;  // failed switches in a row
  std::string plan_id;
  int64_t first_seen = 0;  // when the controller first saw it
  int64_t start_time = 0, end_time = 0;
  int exit_code = 0;
  std::string end_reason;
  int64_t updated = 0;
};

struct CompanionRow {
  std::string cluster;
  uint32_t job_id = 0;
  int64_t submit_time = 0;  // with cluster and job_id the row's key
  JobKey base;              // whom it serves
  std::string intent_id;    // the growth it was submitted for
  std::string node;
  int gpus = 0;
  std::string state;  // "submitted", "running", "registered", "leaving", "ended"
  std::string fingerprint;
  Json registration;  // RegisterRequest body, opaque
  int64_t start_time = 0, lease_end = 0, end_time = 0;
  std::string end_reason;
};

// A growth or shrink in work. It exists exactly while the work does: finish_intent() replaces it by
// a ScalingRow in one transaction, so that after a crash what is open is what must converge.
struct IntentRow {
  std::string id;  // random_hex_id()
  JobKey job;
  std::string kind;      // "grow", "shrink"
  uint32_t for_job = 0;  // shrink: the waiting job
  int from_gpus = 0, to_gpus = 0;
  std::string stage;     // the controller's step; not interpreted here
  Json take, give_back;  // NodeOffer[] as {"node","gpus"}; companion job ids
  Json plan;             // opaque
  int64_t sequence = 0;  // of the order sent to the agent, 0 = none yet
  int64_t decision_id = 0;
  int64_t created = 0, deadline = 0, updated = 0;
};

struct Phases {           // seconds, 0 where a phase did not occur
  double companions = 0;  // submission of the companions → all of them registered
  double save = 0, stop = 0, launch = 0, load = 0, first_step = 0;
  double total = 0;  // last step of the old layout → first step of the new one
};

struct ScalingRow {  // history
  int64_t id = 0;    // given by the store
  JobKey job;
  std::string intent_id, kind;  // "grow", "shrink"
  uint32_t for_job = 0;
  int from_gpus = 0, to_gpus = 0;
  int64_t begin = 0, end = 0;
  std::string outcome;  // "done", "rolled-back", "failed"
  std::string reason;
  Phases phases;
  int64_t decision_id = 0;
};

struct DecisionRow {
  int64_t id = 0;    // given by the store
  JobKey job;        // the elastic job; job_id 0 for an abort
  std::string user;  // its owner, "" for an abort
  uint32_t for_job = 0;
  std::string kind;  // "grow", "refuse", "shrink", "abort"; of people: "pause", "resume"
  std::string rule, reason, formula;
  int from_gpus = 0, to_gpus = 0;
  std::map<std::string, double> inputs;
  Json take, give_back;     // NodeOffer[] as {"node","gpus"}; companion job ids
  int64_t snapshot_id = 0;  // given by the store
  int64_t first_time = 0, last_time = 0;
  int64_t repeats = 1;  // a coalesced "no" counts up
};
// Whether a repetition of it is coalesced.
inline bool is_refusal(const DecisionRow& row) {
  return row.kind == "refuse" || row.kind == "abort";
}

// A refusal that was repeated without being written.
struct Repeats {
  int64_t id = 0;  // its row
  int64_t count = 0, last_time = 0;
};

// `sflex pause`: no growth until `sflex resume`. Of a job over all its runs, or (job_id 0) of all.
struct HoldRow {
  std::string cluster;
  uint32_t job_id = 0;
  int64_t submit_time = 0;
  uint32_t user_id = 0;
  std::string user;          // who said so
  bool by_operator = false;  // root or SlurmUser: the owner may not lift it
  int64_t time = 0;
};

struct ArrivalRow {
  std::string cluster;
  uint32_t job_id = 0;
  int64_t submit_time = 0;
  int gpus = 0;
  bool elastic = false;
};

// GPUs of a partition and GPU type at one moment; partition "" is the whole cluster.
struct IdleRow {
  std::string cluster;
  int64_t time = 0;
  std::string partition, gres_type;
  int total = 0, idle = 0, expanded = 0;  // expanded: held by companions
};

// Idle GPUs by hour of the local day.
struct TideRow {
  std::string partition, gres_type;
  int hour = 0;
  int64_t samples = 0;
  double total = 0, idle = 0, expanded = 0;  // means
  int least_idle = 0, most_idle = 0;
};

struct ProgressRow {  // the newest sample of a job
  JobKey job;
  int64_t time = 0, step = 0, total_steps = 0;
  double loss = 0, tokens_per_second = 0, step_seconds = 0;
  int gpus = 0;
  std::string plan_id, state;
};

struct ScaleTableRow {
  JobKey job;
  int64_t time = 0;
  Json table, profile;  // planner ScaleTable and StepProfile, opaque
};

// What a listing asks for. Empty/0 fields do not restrict.
struct Filter {
  std::vector<uint32_t> job_ids = {};
  std::string user = {};
  int64_t start = 0, end = 0;  // rows alive (jobs, companions) or dated within [start, end]
  bool active_only = false;    // jobs, companions: not ended
  int64_t limit = 10000;       // newest first when cut
};

}  // namespace flextrain::store
