-- SPDX-License-Identifier: MIT
-- Idle GPUs over time, every few minutes; partition '' (gres_type '') is the whole cluster, where a
-- node counts once.
CREATE TABLE idle_samples (
  cluster TEXT NOT NULL,
  time INTEGER NOT NULL,
  partition TEXT NOT NULL,
  gres_type TEXT NOT NULL,
  total INTEGER NOT NULL,
  idle INTEGER NOT NULL,
  expanded INTEGER NOT NULL,
  PRIMARY KEY (time, partition, gres_type, cluster)
) WITHOUT ROWID;
