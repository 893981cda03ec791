// SPDX-License-Identifier: MIT
// The folder through which agent and trainer talk (docs/agent-contract.md), and where the agent
// keeps its own state. Not thread-safe: the supervisor's thread owns it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "protocol/messages.h"

namespace flextrain::agent {

// What a launch runs on and how. `plan` null: the trainer makes its default Plan.
struct Layout {
  std::vector<protocol::Allocation> allocations;
  Json plan;
  int gpus() const;
};

struct PhaseMark {  // a line of phases.jsonl
  std::string phase;
  double time = 0;     // unix seconds, by the trainer's clock
  std::string reason;  // of "save_failed"
};

struct TrainerProgress {
  protocol::ProgressRequest message;
  double time = 0;  // unix seconds
};

// Kept over a restart of the agent within one run of the job, so that no order is executed twice.
struct AgentState {
  int64_t epoch = 0;
  int64_t last_sequence = 0;
  std::string last_order_id;
  std::optional<protocol::ReportRequest> last_report;  // the answer to it
  Layout layout;                                       // last one that made a step
};

class ControlDir {
 public:
  // `path` "" = a folder under TMPDIR (or /tmp) named after user and job. Made if missing; it must
  // belong to us and be writable by nobody else. kAlreadyExists when it holds files of a launch but
  // no agent has used it before.
  static Result<ControlDir> open(const std::string& path, const protocol::JobIdentity& job);

  const std::string& path() const { return path_; }
  std::string file(std::string_view name) const { return path_ + "/" + std::string(name); }

  // Where the question to the job's nodes (Launcher::probe) leaves its outputs, and the last line
  // of that, "" when there is none.
  std::string probe_log() const;
  std::string probe_answer() const;
  // The file that one agent at a time locks (base/file_lock.h).
  std::string lock_path() const;
  // Only with the lock: another agent's trainer may be writing them. The agent's state is kept.
  void remove_former_launch() const;

  // Before a launch, while no trainer runs: plan.json as in `layout` (removed when null), no
  // phases, and the progress there is is not new.
  Status prepare_launch(const Layout& layout);
  // Rank 0 says in the folder `path` that it is about to become the trainer; started(): it has said
  // so since prepare_launch(). True also where nothing can be written.
  static void mark_started(const std::string& path);
  bool started() const;
  // Whether files can be written there now, by the trainer too.
  Status check_writable() const;
  Status write_request(int max_gpus, const std::string& elastic_mode,
                       const std::string& device_type);

  // What the trainer wrote since the last call; nullopt when nothing new, or not readable now.
  std::optional<TrainerProgress> new_progress();
  std::optional<std::string> new_fingerprint();
  std::optional<Json> new_scale_table();
  std::optional<Json> profile() const;
  std::vector<PhaseMark> new_phases();

  AgentState load_state() const;  // a fresh one when there is none or it is damaged
  Status save_state(const AgentState& state) const;

  // Removes a folder that open() chose; one that the user named stays.
  void remove();

 private:
  class Watch {  // whether a file was replaced since the last look
   public:
    bool changed(const std::string& path);

   private:
    ino_t inode_ = 0;
    int64_t seconds_ = 0, nanoseconds_ = 0, size_ = -1;
  };

  std::string path_;
  bool own_ = false;
  Watch progress_, fingerprint_, scale_table_;
  size_t phases_offset_ = 0;
};

// The Plan for `gpus` GPUs in a scale table's JSON (planner/scale_table.h), null when it has none.
Json plan_of_table(const Json& table, int gpus);

}  // namespace flextrain::agent
