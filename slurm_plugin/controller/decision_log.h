// SPDX-License-Identifier: GPL-2.0-or-later
// Which decisions are written, and when. Growths, shrinks and a refusal that is news are written at
// once; a refusal that its job was told before (same kind, rule, waiting job and size) is counted
// here and written once in kRefreshSeconds, with its newest numbers and their snapshot. So a round
// in which nothing changes writes nothing, however many jobs there are, and a job that wavers
// between rules from round to round costs no more. Owns no rows: the database does.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "base/json.h"
#include "store/store.h"

namespace flextrain::slurm_plugin {

class DecisionLog {
 public:
  // All jobs' counts are written in the same round, so that one snapshot serves them all. A crash
  // loses counts of at most so many seconds, never a decision.
  static constexpr int64_t kRefreshSeconds = 30;

  explicit DecisionLog(store::Store& store) : store_(store) {}

  // One round's decisions at time `now`; `snapshot` is asked for only when something is written.
  // The ids of their rows, in order. On an error nothing was written.
  Result<std::vector<int64_t>> record(const std::function<Json()>& snapshot,
                                      std::vector<store::DecisionRow> rows, int64_t now);

  // The database is another one: nothing of it is known.
  void forget() { said_.clear(); }

 private:
  // Whom a decision is about: a run of a job, or the waiting job of an abort.
  using About = std::tuple<uint32_t, int64_t, int, uint32_t>;
  // What it was told: kind, rule, GPUs held.
  using What = std::tuple<std::string, std::string, int>;
  struct Said {
    int64_t written = 0;      // when
    store::Repeats since;     // its row, and what is not written yet
    int64_t since_first = 0;  // the first of these
  };
  static About about(const store::DecisionRow& row);
  static What what(const store::DecisionRow& row);
  static bool refresh_due(int64_t written, int64_t now);

  store::Store& store_;
  std::map<About, std::map<What, Said>> said_;
};

}  // namespace flextrain::slurm_plugin
