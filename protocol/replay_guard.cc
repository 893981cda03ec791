// SPDX-License-Identifier: MIT
#include "protocol/replay_guard.h"

#include <functional>

namespace flextrain::protocol {

bool ReplayGuard::first_time(uid_t uid, std::string_view nonce, Clock::time_point now) {
  uint64_t hash = std::hash<std::string_view>{}(nonce);
  hash ^= (uint64_t{uid} + 1) * 0x9e3779b97f4a7c15ULL;  // a user cannot use up another's nonces
  const std::lock_guard lock(mutex_);
  while (!order_.empty() && (order_.size() >= kMostNonces || now - order_.front().when > memory_)) {
    hashes_.erase(order_.front().hash);
    order_.pop_front();
  }
  if (!hashes_.insert(hash).second) return false;
  order_.push_back({now, hash});
  return true;
}

}  // namespace flextrain::protocol
