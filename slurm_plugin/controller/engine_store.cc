// SPDX-License-Identifier: GPL-2.0-or-later
// The part of Engine that looks after its database: a fault stops growth and nothing else, and when
// it is over the database gets everything that is open again.
#include <fmt/format.h>

#include <utility>

#include "base/log.h"
#include "slurm_plugin/controller/engine.h"

namespace flextrain::slurm_plugin {
namespace {

constexpr size_t kMaxUnsavedScalings = 10'000;

}  // namespace

// Before a round: is the database still there, and does it write again?
void Engine::mind_store() {
  const Status file = store_.check_file();
  if (file.code() == StatusCode::kDataLoss) {
    note_store_fault(file);
    // What was only unlinked can still be read.
    store::OpenState state = open_state();
    for (const auto& job : jobs_) {
      if (auto table = store_.queries().scale_table(job->row.key); table.ok()) {
        state.tables.push_back(std::move(table).value());
      }
    }
    Status status = store_.reopen();
    decision_log_.forget();
    if (status.ok()) status = store_.restore(state);
    if (!status.ok()) {
      // Tried again at the next round. The tables come again from the agents.
      note_store_fault(status);
      return;
    }
    unsaved_scalings_.clear();
    store_fault_.clear();
    log_warning(
        "database: begun anew with the {} jobs that are open, none of which is touched; its "
        "history "
        "is gone{}{}",
        state.jobs.size(), store_.open_note().empty() ? "" : ". ", store_.open_note());
    return;
  }
  if (store_.fault().ok()) return;
  Status status = store_.heal();
  if (status.ok()) status = store_.restore(open_state());
  if (!status.ok()) {
    note_store_fault(status);
    return;
  }
  unsaved_scalings_.clear();
  store_fault_.clear();
  log_info("database: it can be written again, jobs may grow again");
}

// One line per outage, not one per write.
void Engine::note_store_fault(const Status& status) {
  if (store_fault_.empty()) {
    log_error("{}; no growth until that is mended, giving GPUs back goes on", status.message());
  }
  store_fault_ = status.message();
}

store::OpenState Engine::open_state() const {
  store::OpenState state;
  for (const auto& job : jobs_) {
    state.jobs.push_back(stored_row(*job));
    if (job->intent) state.intents.push_back(*job->intent);
    for (const auto& [id, companion] : job->companions) state.companions.push_back(companion.row);
  }
  state.holds = holds_;
  state.scalings = unsaved_scalings_;
  state.epoch = epoch_;
  state.sequence = last_sequence_;
  state.now = now();
  return state;
}

void Engine::keep_for_later(store::ScalingRow row) {
  if (unsaved_scalings_.size() < kMaxUnsavedScalings) unsaved_scalings_.push_back(std::move(row));
}

}  // namespace flextrain::slurm_plugin
