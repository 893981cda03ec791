// SPDX-License-Identifier: MIT
// What a decision was chosen from: the entries of its scale table that a job was weighed for, or
// the jobs that could give GPUs back. Made again from the snapshot when somebody asks, so that a
// tick pays nothing for it. Pure.
#pragma once

#include <string>
#include <vector>

#include "policy/policy.h"

namespace flextrain::policy {

// An entry above what the job holds, weighed alone as decide() would.
struct EntryAlternative {
  TableEntry entry;
  double speedup = 0;  // over the present size
  // What refuses it, "" for what is taken: "slower", a rule of growth ("at-max", "no-idle", a cap,
  // "guard", "gate"), or "less" where it would do but another entry does better.
  std::string refused_by;
  // Of what came to guard and gate; else 0.
  bool weighed = false;
  double saved = 0;   // R − R/S, seconds
  double lambda = 0;  // arrivals per second at its margin
  double value = 0;   // P(benefit); under net-benefit the seconds saved on average
};
// In the table's order. Empty where the job was refused before any entry was weighed, or did not
// come to its turn.
std::vector<EntryAlternative> entry_alternatives(const Snapshot& snapshot,
                                                 const Parameters& parameters, uint32_t job_id);

// A job with companions where the waiting job could run.
struct VictimAlternative {
  uint32_t job_id = 0;
  int expanded = 0;        // GPUs that it could give
  bool spared = false;     // asked after the others: about to end, or in a save
  bool switching = false;  // not asked at all
  int gives = 0;           // GPUs
};
// In the order in which they are asked, those that switch last.
std::vector<VictimAlternative> victim_alternatives(const Snapshot& snapshot,
                                                   const Parameters& parameters, uint32_t for_job);

}  // namespace flextrain::policy
