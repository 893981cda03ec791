// SPDX-License-Identifier: MIT
#include "trainer/emulation/emulated_communicator.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "trainer/emulation/device_memory.h"
#include "trainer/emulation/noise.h"

namespace flextrain::trainer {
namespace {

class EmulatedCommunicator final : public Communicator {
 public:
  EmulatedCommunicator(EmulatedFabric& fabric, std::shared_ptr<EmulatedFabric::Group> group)
      : fabric_(fabric), group_(std::move(group)) {
    const auto& ranks = group_->ranks;
    const int me = fabric_.scheduler().current();
    rank_ = static_cast<int>(std::lower_bound(ranks.begin(), ranks.end(), me) - ranks.begin());
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(group_->ranks.size()); }
  std::string node_name() const override {
    return fmt::format("node-{}", fabric_.cluster().node_of(world_rank(rank_)));
  }

  Status send(std::span<const float> data, int peer, int tag) override {
    RETURN_IF_ERROR(check_peer(peer));
    return fabric_.exchange(world_rank(rank_), world_rank(peer), tag,
                            static_cast<double>(data.size_bytes()));
  }
  Status recv(std::span<float> data, int peer, int tag) override {
    RETURN_IF_ERROR(check_peer(peer));
    return fabric_.exchange(world_rank(peer), world_rank(rank_), tag,
                            static_cast<double>(data.size_bytes()));
  }

  Status all_reduce(std::span<int64_t> data, ReduceOp op) override { return reduce(data, op); }
  Status all_reduce(std::span<float> data, ReduceOp op) override { return reduce(data, op); }
  Status all_reduce(std::span<double> data, ReduceOp op) override { return reduce(data, op); }

  Status broadcast_bytes(std::string& bytes, int root) override {
    RETURN_IF_ERROR(check_peer(root));
    return meet(&bytes, [&] {
      const std::string& from = *static_cast<std::string*>(group_->given[index(root)]);
      for (void* to : group_->given) {
        if (to != &from) *static_cast<std::string*>(to) = from;
      }
      return control_end();
    });
  }
  Result<std::vector<std::string>> gather_bytes(std::string_view bytes, int root) override {
    RETURN_IF_ERROR(check_peer(root));
    struct Part {
      std::string_view bytes;
      std::vector<std::string> all;
    } mine{bytes, {}};
    RETURN_IF_ERROR(meet(&mine, [&] {
      Part& to = *static_cast<Part*>(group_->given[index(root)]);
      for (void* from : group_->given) to.all.emplace_back(static_cast<Part*>(from)->bytes);
      return control_end();
    }));
    return std::move(mine.all);
  }
  Status barrier() override {
    return meet(nullptr, [&] { return control_end(); });
  }

  Result<std::unique_ptr<Communicator>> subgroup(const std::vector<int>& ranks,
                                                 int token) override {
    std::vector<int> members;
    for (const int rank : ranks) {
      RETURN_IF_ERROR(check_peer(rank));
      members.push_back(world_rank(rank));
    }
    if (!std::is_sorted(members.begin(), members.end()) ||
        !std::binary_search(members.begin(), members.end(), world_rank(rank_))) {
      return invalid_argument("subgroup: ranks must ascend and contain rank {}", rank_);
    }
    return std::unique_ptr<Communicator>(
        new EmulatedCommunicator(fabric_, fabric_.group(members, token)));
  }

 private:
  static size_t index(int rank) { return static_cast<size_t>(rank); }
  int world_rank(int rank) const { return group_->ranks[index(rank)]; }
  double control_end() const {
    return fabric_.scheduler().now() + fabric_.network().control(group_->ranks);
  }
  Status check_peer(int peer) const {
    if (peer >= 0 && peer < size()) return {};
    return invalid_argument("rank {} is outside the communicator's 0 … {}", peer, size() - 1);
  }

  // `finish`, by the last to come, does the work for all (whose data stay where they are: they
  // wait) and says when it is over.
  template <typename Finish>
  Status meet(void* data, Finish&& finish) {
    RankScheduler& scheduler = fabric_.scheduler();
    EmulatedFabric::Group& group = *group_;
    RETURN_IF_ERROR(scheduler.wait_for_turn());
    if (size() == 1) {
      group.given.assign(1, data);
      scheduler.advance_to(finish());
      return {};
    }
    if (group.arrived == 0) group.given.resize(group.ranks.size());
    group.given[index(rank_)] = data;
    if (++group.arrived < size()) return scheduler.block();
    const double end = finish();
    group.arrived = 0;
    for (const int rank : group.ranks) {
      if (rank != scheduler.current()) scheduler.wake(rank, end);
    }
    scheduler.advance_to(end);
    return {};
  }

  template <typename T>
  Status reduce(std::span<T> data, ReduceOp op) {
    if (size() == 1) return {};
    return meet(&data, [&] {
      const auto spans = [this](size_t i) { return *static_cast<std::span<T>*>(group_->given[i]); };
      if (is_emulated_memory(data.data())) {
        return fabric_.network().all_reduce(group_->ranks, static_cast<double>(data.size_bytes()),
                                            fabric_.scheduler().now());
      }
      const std::span<T> sum = spans(0);
      for (size_t rank = 1; rank < group_->ranks.size(); ++rank) {
        const std::span<T> other = spans(rank);
        for (size_t i = 0; i < sum.size(); ++i) {
          sum[i] = op == ReduceOp::kSum ? sum[i] + other[i] : std::max(sum[i], other[i]);
        }
      }
      for (size_t rank = 1; rank < group_->ranks.size(); ++rank) {
        std::copy(sum.begin(), sum.end(), spans(rank).begin());
      }
      return control_end();
    });
  }

  EmulatedFabric& fabric_;
  std::shared_ptr<EmulatedFabric::Group> group_;
  int rank_ = 0;
};

}  // namespace

size_t EmulatedFabric::KeyHash::operator()(const Key& key) const {
  const auto pair = (static_cast<uint64_t>(key.from) << 32) | static_cast<uint64_t>(key.to);
  return mix_bits(mix_bits(pair) ^ static_cast<uint64_t>(key.tag));
}

std::unique_ptr<Communicator> EmulatedFabric::world() {
  std::vector<int> ranks(static_cast<size_t>(ranks_));
  std::iota(ranks.begin(), ranks.end(), 0);
  return std::make_unique<EmulatedCommunicator>(*this, group(ranks, -1));
}

std::shared_ptr<EmulatedFabric::Group> EmulatedFabric::group(const std::vector<int>& ranks,
                                                             int token) {
  std::weak_ptr<Group>& known = groups_[{ranks, token}];
  std::shared_ptr<Group> group = known.lock();
  if (group == nullptr) {
    group = std::make_shared<Group>(Group{ranks, {}, 0});
    known = group;
  }
  return group;
}

Status EmulatedFabric::exchange(int from, int to, int tag, double bytes) {
  RETURN_IF_ERROR(scheduler_.wait_for_turn());
  const int me = scheduler_.current();
  const auto [at, first] = waiting_.try_emplace(Key{from, to, tag}, Waiting{me, bytes});
  if (first) return scheduler_.block();
  const Waiting other = at->second;
  if (other.rank == me || other.bytes != bytes) {
    return failed_precondition("a message of {} bytes from rank {} to {} met one of {}", bytes,
                               from, to, other.bytes);
  }
  waiting_.erase(at);
  const double end = network_.transfer(from, to, bytes, scheduler_.now());
  scheduler_.wake(other.rank, end);
  scheduler_.advance_to(end);
  return {};
}

}  // namespace flextrain::trainer
