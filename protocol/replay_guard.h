// SPDX-License-Identifier: MIT
// Refuses a request whose nonce the same user has sent before. munged refuses a credential that it
// has seen, but forgets that when it is restarted; this remembers for as long as a credential
// lives. Thread-safe, pure; keeps 64-bit hashes, kMostNonces at most (the oldest go first).
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string_view>
#include <unordered_set>

namespace flextrain::protocol {

class ReplayGuard {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr size_t kMostNonces = size_t{1} << 18;

  explicit ReplayGuard(Clock::duration memory) : memory_(memory) {}
  // True the first time within `memory`.
  bool first_time(uid_t uid, std::string_view nonce, Clock::time_point now);

 private:
  struct Seen {
    Clock::time_point when;
    uint64_t hash;
  };
  const Clock::duration memory_;
  std::mutex mutex_;
  std::deque<Seen> order_;
  std::unordered_set<uint64_t> hashes_;
};

}  // namespace flextrain::protocol
