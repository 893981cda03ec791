// SPDX-License-Identifier: MIT
// Runs the ranks of an emulated cluster in one thread, each on a stack and with a clock of its own.
// A rank computes until it meets another one (wait_for_turn(), block()); of those that can go on,
// the one whose clock is furthest behind goes first. So whatever ranks share (a link) is asked for
// in the order of virtual time, and a run is the same every time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <vector>

#include "base/status.h"

namespace flextrain::trainer {

class RankScheduler {
 public:
  RankScheduler();
  ~RankScheduler();
  RankScheduler(const RankScheduler&) = delete;
  RankScheduler& operator=(const RankScheduler&) = delete;

  // body(0) … body(ranks - 1) to their ends, all clocks from 0. The first error that a body
  // returned: then the others' block() fails, so that they end too. kFailedPrecondition names ranks
  // that wait for each other for ever; kResourceExhausted: no memory for the stacks.
  Status run(int ranks, const std::function<Status(int rank)>& body);

  // For the running rank. Seconds.
  int current() const { return current_; }
  double now() const { return ranks_[static_cast<size_t>(current_)].clock; }
  double clock_of(int rank) const { return ranks_[static_cast<size_t>(rank)].clock; }
  void advance(double seconds) { ranks_[static_cast<size_t>(current_)].clock += seconds; }
  void advance_to(double time);
  // Returns when no rank that can run is behind this one.
  Status wait_for_turn();
  // Returns after wake(); an error when another rank has failed.
  Status block();
  // Lets a blocked rank go on at `time` of its clock (later if it is there already).
  void wake(int rank, double time);

 private:
  struct Fiber;  // a stack and the registers of a rank that does not run
  enum class State { kRunnable, kRunning, kBlocked, kEnded };
  struct Rank {
    double clock = 0;
    State state = State::kRunnable;
    Status result;
    std::unique_ptr<Fiber> fiber;
  };
  struct Turn {
    double time;
    int rank;
    bool operator>(const Turn& other) const {
      return time != other.time ? time > other.time : rank > other.rank;
    }
  };
  static void enter(unsigned high, unsigned low);
  void queue_up(int rank);
  void leave_rank(State state);  // back to run()
  Status failure() const;
  std::string blocked_ranks() const;

  const std::function<Status(int)>* body_ = nullptr;
  std::vector<Rank> ranks_;
  std::priority_queue<Turn, std::vector<Turn>, std::greater<>> turns_;
  std::unique_ptr<Fiber> main_;
  int current_ = -1;
  Status failed_;
};

}  // namespace flextrain::trainer
