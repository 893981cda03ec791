// SPDX-License-Identifier: MIT
// The GPUs of a replay: which are free, who holds the others, what is on its way back. Two kinds:
// one pool in which any free GPU serves any job, and nodes of equal size. Pure. Private to
// simulator/ and the tests.
//
// On nodes a job of g GPUs takes ⌊g/G⌋ wholly free nodes and the rest on the fullest node that has
// room for it; it grows and shrinks by companions, one per node and none on a node of its own, as
// the controller's jobs do.
#pragma once

#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "policy/policy.h"
#include "simulator/replay.h"

namespace flextrain::simulator {

// An elastic job that holds more than its base.
struct ExpandedJob {
  int job = 0;  // index into Trace::jobs
  int base = 0, held = 0;
  const std::vector<policy::TableEntry>* table = nullptr;
  double remaining = 0;  // seconds at the present speed
};

struct GiveBack {
  int job = 0, gpus = 0;   // that it holds afterwards
  std::vector<int> leave;  // on nodes: the nodes of the companions that go
};

// The GPUs as they will be when the queue's head is to start; jobs that run until then by their
// limits have been taken away.
class Shadow {
 public:
  virtual ~Shadow() = default;
  virtual void add(int job, int base) = 0;  // has ended by then
  virtual bool fits() const = 0;            // the head
  virtual int spare() const = 0;            // GPUs beyond what the head needs
  // Whether the head still fits when a job of `gpus` starts now, after `plan`, and runs on.
  virtual bool admits(int gpus, const std::vector<GiveBack>& plan) const = 0;
  virtual void take(int job, int gpus) = 0;  // it has started
};

class Pool {
 public:
  virtual ~Pool() = default;

  int free() const { return free_; }
  int expanded() const { return expanded_; }  // held by elastic jobs beyond their bases
  int coming() const { return coming_gpus_; }
  // When the next GPUs are handed over; infinite when none are.
  double next_hand_over() const {
    return coming_.empty() ? std::numeric_limits<double>::infinity() : coming_.front().time;
  }
  // What the job holds; of a node at most once. Empty in one pool.
  virtual std::vector<NodeShare> nodes_of(int /*job*/) const { return {}; }
  // Free GPUs on nodes that are partly used.
  virtual int stranded() const { return 0; }

  // Whether a job of `gpus` fits into what is free; with what is being handed over; with what
  // elastic jobs could give back, too.
  virtual bool fits(int gpus) const = 0;
  virtual bool fits_soon(int gpus) const = 0;
  virtual bool fits_at_most(int gpus) const = 0;

  virtual void start(int job, int gpus) = 0;  // which fits
  virtual void end(int job, int base, int held) = 0;

  // Free GPUs that the elastic job could grow into.
  virtual int fitting(int /*job*/) const { return free_; }
  virtual void grow(int job, int gpus) = 0;  // at most what is fitting

  // Who gives back what, so that a job of `gpus` fits soon that fits at most. Changes nothing.
  virtual std::vector<GiveBack> plan_reclaim(int gpus,
                                             const std::vector<ExpandedJob>& jobs) const = 0;
  // Of a job that holds `held`; what it gives is free at `time`, at once when that is `now`.
  virtual void shrink(const GiveBack& give, int held, double now, double time) = 0;
  virtual void hand_over(double now) = 0;  // what is due

  virtual std::unique_ptr<Shadow> shadow(int head_gpus) const = 0;

 protected:
  struct HandOver {
    double time = 0;
    int node = 0, gpus = 0;
  };
  explicit Pool(int gpus) : free_(gpus) {}

  int free_ = 0, expanded_ = 0, coming_gpus_ = 0;
  std::deque<HandOver> coming_;  // by time
};

std::unique_ptr<Pool> make_pool(int gpus, const policy::Parameters& parameters);
// `jobs`: how many the trace has.
std::unique_ptr<Pool> make_node_pool(int nodes, int gpus_per_node, size_t jobs,
                                     const policy::Parameters& parameters);

}  // namespace flextrain::simulator
