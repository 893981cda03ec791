-- SPDX-License-Identifier: MIT
-- Who forbids a job to grow until further notice; job_id 0 (submit_time 0): all jobs. A requeue
-- gives the job another submit_time: the controller moves the row along.
CREATE TABLE holds (
  cluster TEXT NOT NULL,
  job_id INTEGER NOT NULL,
  submit_time INTEGER NOT NULL,
  user_id INTEGER NOT NULL,
  user TEXT NOT NULL,
  operator INTEGER NOT NULL,
  time INTEGER NOT NULL,
  PRIMARY KEY (cluster, job_id, submit_time)
);
