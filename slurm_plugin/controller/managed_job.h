// SPDX-License-Identifier: GPL-2.0-or-later
// What the controller knows of one run of an elastic job: its stored rows and what lives only in
// memory. Plain data with questions about it; no behaviour.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "protocol/elastic_request.h"
#include "protocol/endpoint_server.h"
#include "protocol/messages.h"
#include "slurm_plugin/cluster/cluster.h"
#include "slurm_plugin/controller/elastic_job.h"
#include "slurm_plugin/controller/table_view.h"
#include "store/rows.h"

namespace flextrain::slurm_plugin {

// store::CompanionRow::state.
inline constexpr std::string_view kCompanionSubmitted = "submitted";
inline constexpr std::string_view kCompanionRunning = "running";
inline constexpr std::string_view kCompanionRegistered = "registered";
inline constexpr std::string_view kCompanionLeaving = "leaving";
inline constexpr std::string_view kCompanionEnded = "ended";

struct Companion {
  store::CompanionRow row;
  std::vector<protocol::Allocation> allocations;  // as its agent registered them
  bool started = false;                           // holds its GPUs, as far as seen
  bool cancel_sent = false;
  protocol::ReplyPtr parked;  // its long poll
  bool leaving() const { return row.state == kCompanionLeaving; }
};

// What keeps a job from growing besides the policy: rule and sentence, "" = nothing.
struct Hold {
  std::string rule, reason;
};

// A long poll that waits for an order.
struct ParkedPoll {
  protocol::ReplyPtr reply;
  int64_t last_sequence = 0;
};

struct ManagedJob {
  store::ElasticJobRow row;
  ElasticState state = ElasticState::kStarting;
  JobRecord record;  // as last seen
  protocol::ElasticRequest request;
  protocol::RegisterRequest registration;     // meaningful when row.registered
  std::vector<protocol::Allocation> trainer;  // what the trainer uses now; empty = the base alone
  std::map<uint32_t, Companion> companions;   // not ended, by job id
  std::optional<store::IntentRow> intent;
  std::vector<protocol::Allocation> ordered;  // allocations of the order that is out
  TableView table;
  std::optional<store::ProgressRow> progress;
  bool progress_dirty = false;
  bool resubmit = false;   // loaded in companions-pending: see that every companion is submitted
  int64_t last_heard = 0;  // of the base agent
  int64_t deadline = 0;    // of the state, 0 = none
  int64_t size_mismatch_since = 0;  // progress has contradicted `trainer` since then
  ParkedPoll parked;
  int poll_seconds = 25;  // how long a poll stays open, as told at the registration
  Hold hold;              // as of this round

  std::vector<int64_t> switch_times;  // of the last hour, ascending

  // Filled before a transition, used by its actions.
  std::string why;                // one sentence
  bool counts_as_failure = true;  // a growth given up for a waiting job is none
  protocol::PhaseSeconds phases;
  double companions_seconds = 0;
  std::vector<protocol::Allocation> reported;  // of the newest report

  int scalings_since(int64_t time) const {
    return static_cast<int>(std::count_if(switch_times.begin(), switch_times.end(),
                                          [&](int64_t at) { return at > time; }));
  }
  bool uses(uint32_t companion_id) const {
    for (const protocol::Allocation& allocation : trainer) {
      if (allocation.job_id == companion_id) return true;
    }
    return false;
  }
  bool any_leaving() const {
    for (const auto& [id, companion] : companions) {
      if (companion.leaving()) return true;
    }
    return false;
  }
  // Base and the companions in use that stay (policy.h).
  int held_gpus() const {
    int gpus = row.base_gpus;
    const std::set<uint32_t> going = given_back();
    for (const auto& [id, companion] : companions) {
      if (uses(id) && !companion.leaving() && !going.contains(id)) gpus += companion.row.gpus;
    }
    return gpus;
  }
  bool of_intent(const Companion& companion) const {
    return intent && intent->kind == "grow" && companion.row.intent_id == intent->id;
  }
  std::set<uint32_t> given_back() const {
    std::set<uint32_t> ids;
    if (intent && intent->kind == "shrink" && intent->give_back.is_array()) {
      for (const Json& id : intent->give_back) ids.insert(id.get<uint32_t>());
    }
    return ids;
  }
};

}  // namespace flextrain::slurm_plugin
