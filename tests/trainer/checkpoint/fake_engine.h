// SPDX-License-Identifier: MIT
// An Engine that is only its state, and Communicators without MPI: one of size 1, and a group of
// threads.
#pragma once

#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "trainer/comm/communicator.h"
#include "trainer/engine/engine.h"

namespace flextrain::trainer {

inline LayerState make_layer(planner::LayerId layer, float value) {
  LayerState state;
  state.layer = layer;
  for (const TensorRole role :
       {TensorRole::kWeight, TensorRole::kFirstMoment, TensorRole::kSecondMoment}) {
    for (const char* name : {"a.weight", "b.weight"}) {
      NamedTensor tensor{name, role, {2, 3}, {}};
      for (int i = 0; i < 6; ++i) {
        tensor.values.push_back(value + static_cast<float>(layer) + 0.125f * static_cast<float>(i) +
                                static_cast<float>(role));
      }
      state.tensors.push_back(std::move(tensor));
    }
  }
  return state;
}

class FakeEngine : public Engine {
 public:
  // Holds `layers`; the values begin at `value` so that states of different steps differ.
  FakeEngine(std::vector<planner::LayerId> layers, float value) : held_(layers), saved_(layers) {
    for (const planner::LayerId layer : layers) state_[layer] = make_layer(layer, value);
  }
  Status initialize() override { return {}; }
  Result<StepResult> train_step(int64_t, int64_t, const BatchSource&, bool, bool) override {
    return internal_error("not used");
  }
  Result<double> evaluate(const BatchSource&, int) override { return internal_error("not used"); }
  Status change_schedule(const planner::Plan&) override { return internal_error("not used"); }
  std::vector<planner::LayerId> layers_to_save() const override { return saved_; }
  std::vector<planner::LayerId> layers_held() const override { return held_; }
  Result<LayerState> export_layer(planner::LayerId layer) const override {
    return state_.at(layer);
  }
  Status import_layer(const LayerState& state) override {
    if (state_.count(state.layer) == 0) {
      return invalid_argument("layer {} is not held here", state.layer);
    }
    state_[state.layer] = state;
    return {};
  }
  int accumulation_scale() const override { return scale_; }
  void set_accumulation_scale(int scale) override { scale_ = scale; }
  Result<planner::StepProfile> profile() override { return internal_error("not used"); }
  const std::vector<TraceEvent>& trace() const override { return trace_; }
  int64_t static_bytes() const override { return 0; }
  int64_t device_bytes() const override { return 0; }
  void restart_profile() override {}

  void save_only(std::vector<planner::LayerId> layers) { saved_ = std::move(layers); }
  LayerState& layer(planner::LayerId id) { return state_.at(id); }
  // The value that the first weight of `id` has in make_layer(id, value).
  float value_of(planner::LayerId id) const {
    return state_.at(id).tensors[0].values[0] - static_cast<float>(id);
  }

 private:
  std::vector<planner::LayerId> held_, saved_;
  std::map<planner::LayerId, LayerState> state_;
  std::vector<TraceEvent> trace_;
  int scale_ = 44;
};

// What the threads of a group share.
struct ThreadGroup {
  explicit ThreadGroup(int size) : slots(static_cast<size_t>(size)) {}
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::string> slots;
  int arrived = 0;
  int generation = 0;

  // Everyone's bytes, in rank order, on every rank.
  std::vector<std::string> exchange(int rank, std::string bytes) {
    std::unique_lock lock(mutex);
    slots[static_cast<size_t>(rank)] = std::move(bytes);
    wait_for_all(lock);
    std::vector<std::string> all = slots;
    wait_for_all(lock);  // nobody overwrites a slot before all have read
    return all;
  }
  void wait_for_all(std::unique_lock<std::mutex>& lock) {
    const int mine = generation;
    if (++arrived == static_cast<int>(slots.size())) {
      arrived = 0;
      ++generation;
      changed.notify_all();
      return;
    }
    changed.wait(lock, [&] { return generation != mine; });
  }
};

class ThreadCommunicator : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<ThreadGroup> group, int rank)
      : group_(std::move(group)), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(group_->slots.size()); }
  Status send(std::span<const float>, int, int) override { return internal_error("not used"); }
  Status recv(std::span<float>, int, int) override { return internal_error("not used"); }
  Status all_reduce(std::span<int64_t> data, ReduceOp op) override {
    const std::string bytes(reinterpret_cast<const char*>(data.data()), data.size_bytes());
    const std::vector<std::string> all = group_->exchange(rank_, bytes);
    for (size_t i = 0; i < data.size(); ++i) {
      for (size_t r = 0; r < all.size(); ++r) {
        int64_t value = 0;
        std::memcpy(&value, all[r].data() + i * sizeof value, sizeof value);
        data[i] = r == 0                 ? value
                  : op == ReduceOp::kSum ? data[i] + value
                  : value > data[i]      ? value
                                         : data[i];
      }
    }
    return {};
  }
  Status all_reduce(std::span<float>, ReduceOp) override { return internal_error("not used"); }
  Status all_reduce(std::span<double>, ReduceOp) override { return internal_error("not used"); }
  Status broadcast_bytes(std::string& bytes, int root) override {
    bytes = group_->exchange(rank_, bytes)[static_cast<size_t>(root)];
    return {};
  }
  Result<std::vector<std::string>> gather_bytes(std::string_view bytes, int root) override {
    std::vector<std::string> all = group_->exchange(rank_, std::string(bytes));
    if (rank_ != root) all.clear();
    return all;
  }
  Status barrier() override {
    group_->exchange(rank_, "");
    return {};
  }
  Result<std::unique_ptr<Communicator>> subgroup(const std::vector<int>&, int) override {
    return internal_error("not used");
  }

 private:
  std::shared_ptr<ThreadGroup> group_;
  int rank_;
};

// Runs `body(communicator)` on `size` threads that form one group.
inline void run_ranks(int size, const std::function<void(Communicator&)>& body) {
  const auto group = std::make_shared<ThreadGroup>(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      ThreadCommunicator comm(group, rank);
      body(comm);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace flextrain::trainer
