// SPDX-License-Identifier: MIT
// The state of one replay: events, the queue and backfill in replay.cc, growth in
// replay_growth.cc. Private to simulator/.
#pragma once

#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <utility>
#include <vector>

#include "policy/caps.h"
#include "policy/forecast.h"
#include "policy/growth_rules.h"
#include "simulator/pool.h"
#include "simulator/replay.h"

namespace flextrain::simulator {

inline constexpr double kForever = std::numeric_limits<double>::infinity();

class Replay {
 public:
  Replay(const Trace& trace, const ReplayOptions& options, const ReplayResult* rigid);
  ReplayResult run(const std::function<void(double)>& progress);

 private:
  struct Running {  // an elastic job
    int job = 0;
    int base = 0, held = 0;
    const std::vector<policy::TableEntry>* table = nullptr;
    double work = 0;   // seconds at the base size that are left at `since`
    double speed = 1;  // relative to the base
    double since = 0;  // of `work`
    double paused_until = 0;
    double pause = 0;              // seconds per switch
    int version = 0;               // of its end event
    std::vector<double> switches;  // when they were done, ascending; those of the last hour
  };

  struct End {
    double time = 0;
    int job = 0, version = 0;
    bool operator>(const End& other) const {
      return time != other.time ? time > other.time : job > other.job;
    }
  };

  const TraceJob& job(int index) const { return trace_.jobs[static_cast<size_t>(index)]; }
  Running& running(int index) {
    return elastic_[static_cast<size_t>(slot_[static_cast<size_t>(index)])];
  }
  double limit_end(int index) const {
    return result_.jobs[static_cast<size_t>(index)].start + job(index).limit;
  }
  bool is_elastic(const TraceJob& job) const;

  void pass_time(double until);
  void end_jobs();
  void leave(int slot);
  void arrive();
  void start(int index);
  void start_in_order();
  bool make_room(int gpus, const Shadow* shadow);
  void backfill();
  double remaining(const Running& running) const;
  void note_placement(int index) {
    if (options_.record_placements)
      result_.placements.push_back({index, now_, pool_->nodes_of(index)});
  }
  // Now with `gpus`, which the pool knows already.
  void resize(Running& running, int gpus);

  std::optional<double> known_remaining(const Running& running) const;
  double stays(int margin) const;
  void grow();
  void fill(policy::PoolFacts pool);
  void grow_to(Running& running, const policy::TableEntry& entry);
  policy::JobFacts facts_of(const Running& running, const policy::Allowance& allowance) const;
  policy::Caps caps() const;
  const std::string& user_of(const Running& running) const;
  const std::string& account_of(const Running& running) const;

  const Trace& trace_;
  const ReplayOptions& options_;
  const ReplayResult* rigid_;
  policy::Forecaster forecaster_;
  policy::RateAt rate_;
  policy::StayAt stay_;  // empty unless an oracle decides
  ReplayResult result_;
  std::unique_ptr<Pool> pool_;
  double now_ = 0, last_pass_ = -kForever, next_sample_ = 0;
  bool changed_ = false;                              // since the last backfill pass
  size_t next_ = 0;                                   // arrival
  std::vector<int> queue_;                            // in order of arrival
  std::vector<Running> elastic_;                      // running, no order
  std::vector<char> elastic_user_, elastic_account_;  // by index; empty = all
  std::vector<int> slot_;                             // job → index in elastic_, or −1
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
  std::vector<std::pair<double, int>> limits_;  // end by run limit, job; ascending
  std::map<int, std::vector<policy::TableEntry>> tables_;
  std::vector<std::pair<int, int>> order_;
};

}  // namespace flextrain::simulator
