-- SPDX-License-Identifier: MIT
-- Times are unix seconds (0 = not known), durations seconds. A run of a job is named by (cluster,
-- job_id, submit_time, restart_count). *_json columns hold JSON text, '' = absent; *_zstd columns
-- hold zstd-compressed JSON.

CREATE TABLE meta (
  key   TEXT PRIMARY KEY,
  value INTEGER NOT NULL
);
INSERT INTO meta VALUES ('epoch', 0), ('sequence', 0), ('last_retention', 0);

CREATE TABLE jobs (
  cluster TEXT NOT NULL,
  job_id INTEGER NOT NULL,
  submit_time INTEGER NOT NULL,
  restart_count INTEGER NOT NULL,
  user TEXT NOT NULL,
  user_id INTEGER NOT NULL,
  group_id INTEGER NOT NULL,
  name TEXT NOT NULL,
  account TEXT NOT NULL,
  partition TEXT NOT NULL,
  mode TEXT NOT NULL,
  base_gpus INTEGER NOT NULL,
  held_gpus INTEGER NOT NULL,
  max_gpus INTEGER NOT NULL,
  state TEXT NOT NULL,
  state_reason TEXT NOT NULL,
  registered INTEGER NOT NULL,
  fingerprint TEXT NOT NULL,
  numerics TEXT NOT NULL,
  agent_version TEXT NOT NULL,
  agent_path TEXT NOT NULL,
  work_dir TEXT NOT NULL,
  registration_json TEXT NOT NULL,
  allocations_json TEXT NOT NULL,
  grow_overhead REAL NOT NULL,
  shrink_overhead REAL NOT NULL,
  last_switch_time INTEGER NOT NULL,
  last_failure_time INTEGER NOT NULL,
  failures INTEGER NOT NULL,
  plan_id TEXT NOT NULL,
  first_seen INTEGER NOT NULL,
  start_time INTEGER NOT NULL,
  end_time INTEGER NOT NULL,
  exit_code INTEGER NOT NULL,
  end_reason TEXT NOT NULL,
  updated INTEGER NOT NULL,
  PRIMARY KEY (cluster, job_id, submit_time, restart_count)
);
CREATE INDEX jobs_by_end ON jobs (end_time);

CREATE TABLE companions (
  cluster TEXT NOT NULL,
  job_id INTEGER NOT NULL,
  submit_time INTEGER NOT NULL,
  base_cluster TEXT NOT NULL,
  base_job_id INTEGER NOT NULL,
  base_submit_time INTEGER NOT NULL,
  base_restart_count INTEGER NOT NULL,
  intent_id TEXT NOT NULL,
  node TEXT NOT NULL,
  gpus INTEGER NOT NULL,
  state TEXT NOT NULL,
  fingerprint TEXT NOT NULL,
  registration_json TEXT NOT NULL,
  start_time INTEGER NOT NULL,
  lease_end INTEGER NOT NULL,
  end_time INTEGER NOT NULL,
  end_reason TEXT NOT NULL,
  PRIMARY KEY (cluster, job_id, submit_time)
);
CREATE INDEX companions_by_base ON companions (base_job_id);
CREATE INDEX companions_by_end ON companions (end_time);

-- Work in progress; a row lives from the decision to act until the outcome is in scalings.
CREATE TABLE intents (
  id TEXT PRIMARY KEY,
  cluster TEXT NOT NULL,
  job_id INTEGER NOT NULL,
  submit_time INTEGER NOT NULL,
  restart_count INTEGER NOT NULL,
  kind TEXT NOT NULL,
  for_job INTEGER NOT NULL,
  from_gpus INTEGER NOT NULL,
  to_gpus INTEGER NOT NULL,
  stage TEXT NOT NULL,
  take_json TEXT NOT NULL,
  give_back_json TEXT NOT NULL,
  plan_json TEXT NOT NULL,
  sequence INTEGER NOT NULL,
  decision_id INTEGER NOT NULL,
  created INTEGER NOT NULL,
  deadline INTEGER NOT NULL,
  updated INTEGER NOT NULL,
  UNIQUE (cluster, job_id, submit_time, restart_count)
);

CREATE TABLE scalings (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  cluster TEXT NOT NULL,
  job_id INTEGER NOT NULL,
  submit_time INTEGER NOT NULL,
  restart_count INTEGER NOT NULL,
  intent_id TEXT NOT NULL,
  kind TEXT NOT NULL,
  for_job INTEGER NOT NULL,
  from_gpus INTEGER NOT NULL,
  to_gpus INTEGER NOT NULL,
  begin_time INTEGER NOT NULL,
  end_time INTEGER NOT NULL,
  outcome TEXT NOT NULL,
  reason TEXT NOT NULL,
  companions_seconds REAL NOT NULL,
  save_seconds REAL NOT NULL,
  stop_seconds REAL NOT NULL,
  launch_seconds REAL NOT NULL,
  load_seconds REAL NOT NULL,
  first_step_seconds REAL NOT NULL,
  total_seconds REAL NOT NULL,
  decision_id INTEGER NOT NULL
);
CREATE INDEX scalings_by_job ON scalings (job_id);
CREATE INDEX scalings_by_decision ON scalings (decision_id);
CREATE INDEX scalings_by_end ON scalings (end_time);

-- One per tick, kept while a decision refers to it.
CREATE TABLE snapshots (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  content_zstd BLOB NOT NULL
);

CREATE TABLE decisions (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  cluster TEXT NOT NULL,
  job_id INTEGER NOT NULL,
  submit_time INTEGER NOT NULL,
  restart_count INTEGER NOT NULL,
  user TEXT NOT NULL,
  for_job INTEGER NOT NULL,
  kind TEXT NOT NULL,
  rule TEXT NOT NULL,
  reason TEXT NOT NULL,
  formula TEXT NOT NULL,
  from_gpus INTEGER NOT NULL,
  to_gpus INTEGER NOT NULL,
  inputs_json TEXT NOT NULL,
  take_json TEXT NOT NULL,
  give_back_json TEXT NOT NULL,
  snapshot_id INTEGER NOT NULL,
  first_time INTEGER NOT NULL,
  last_time INTEGER NOT NULL,
  repeats INTEGER NOT NULL
);
CREATE INDEX decisions_by_job ON decisions (job_id, id);
CREATE INDEX decisions_by_time ON decisions (last_time);
CREATE INDEX decisions_by_snapshot ON decisions (snapshot_id);

CREATE TABLE arrivals (
  cluster TEXT NOT NULL,
  job_id INTEGER NOT NULL,
  submit_time INTEGER NOT NULL,
  gpus INTEGER NOT NULL,
  elastic INTEGER NOT NULL,
  PRIMARY KEY (cluster, job_id, submit_time)
);
CREATE INDEX arrivals_by_time ON arrivals (submit_time);

CREATE TABLE progress (
  cluster TEXT NOT NULL,
  job_id INTEGER NOT NULL,
  submit_time INTEGER NOT NULL,
  restart_count INTEGER NOT NULL,
  time INTEGER NOT NULL,
  step INTEGER NOT NULL,
  total_steps INTEGER NOT NULL,
  loss REAL,
  tokens_per_second REAL,
  step_seconds REAL,
  gpus INTEGER NOT NULL,
  plan_id TEXT NOT NULL,
  state TEXT NOT NULL,
  PRIMARY KEY (cluster, job_id, submit_time, restart_count)
);

CREATE TABLE scale_tables (
  cluster TEXT NOT NULL,
  job_id INTEGER NOT NULL,
  submit_time INTEGER NOT NULL,
  restart_count INTEGER NOT NULL,
  time INTEGER NOT NULL,
  table_zstd BLOB NOT NULL,
  profile_zstd BLOB NOT NULL,
  PRIMARY KEY (cluster, job_id, submit_time, restart_count)
);
