// SPDX-License-Identifier: MIT
// How many bytes of requests and responses the endpoint keeps at once. Every request has a little
// for itself, so that an agent's small messages pass whatever the others do; what is beyond comes
// out of one pool, of which one address gets a quarter at most. Thread-safe, pure.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <string>

namespace flextrain::protocol {

class ByteBudget {
 public:
  static constexpr size_t kFreeBytes = size_t{64} << 10;  // of each request or response

  explicit ByteBudget(size_t pool) : pool_(pool) {}

  // One request's or response's bytes. Gives back when it goes, or once before, from any thread.
  class Share {
   public:
    Share() = default;
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;
    ~Share() { release(); }
    void release();  // back to nothing

   private:
    friend class ByteBudget;
    ByteBudget* budget_ = nullptr;
    std::string address_;
    size_t bytes_ = 0, charged_ = 0;
  };

  // `bytes` more in `share`, which belongs to `address`; false, and nothing changes, when there is
  // no room.
  bool add(Share& share, const std::string& address, size_t bytes);
  // `share` is `bytes` from now on, less or more than before; false, and nothing changes, when
  // there is no room.
  bool set(Share& share, const std::string& address, size_t bytes);
  size_t used() const;  // of the pool

 private:
  bool set_locked(Share& share, const std::string& address, size_t bytes);
  void give_back_locked(Share& share, size_t bytes);

  const size_t pool_;
  mutable std::mutex mutex_;
  size_t used_ = 0;
  std::map<std::string, size_t> by_address_;  // only those that use something
};

}  // namespace flextrain::protocol
