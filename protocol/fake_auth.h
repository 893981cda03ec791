// SPDX-License-Identifier: MIT
// An Authenticator for tests: it believes what it is told. Never linked into a shipped program's
// path: only tests construct it.
#pragma once

#include <mutex>
#include <set>

#include "protocol/auth.h"

namespace flextrain::protocol {

// Thread-safe. Credentials of one FakeAuthenticator can be decoded by every other one.
class FakeAuthenticator : public Authenticator {
 public:
  FakeAuthenticator(uid_t uid, gid_t gid) : uid_(uid), gid_(gid) {}
  Result<std::string> encode(std::string_view bytes, std::optional<uid_t> only_for) override;
  Result<Decoded> decode(std::string_view credential) override;
  void set_available(bool available);      // false: both calls return kUnavailable
  void set_age(std::chrono::seconds age);  // what decode() says of every credential

 private:
  const uid_t uid_;
  const gid_t gid_;
  std::mutex mutex_;
  bool available_ = true;
  std::chrono::seconds age_{0};
  std::set<std::string> seen_;  // ids of decoded credentials: a second decode is a replay
};

}  // namespace flextrain::protocol
