// SPDX-License-Identifier: MIT
// Who sent these bytes? A credential proves the uid and gid of its maker and hides nothing it was
// not asked to hide. munge in production (the one Slurm already runs), a fake in tests.
//
// Implementations are thread-safe. decode() and encode() may block for some milliseconds (munge:
// a round trip to munged), so they are kept off event loops.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace flextrain::protocol {

struct Decoded {
  std::string bytes;
  uid_t uid = static_cast<uid_t>(-1);  // of the process that made the credential
  gid_t gid = static_cast<gid_t>(-1);
  // Since it was made, by the two hosts' clocks: whole seconds, at most one too many where they
  // agree.
  std::chrono::seconds age{0};
};

class Authenticator {
 public:
  virtual ~Authenticator() = default;

  // A printable credential around `bytes`. With `only_for` no other uid can decode it.
  // kUnavailable: the service is away; kResourceExhausted: too large for one credential.
  virtual Result<std::string> encode(std::string_view bytes,
                                     std::optional<uid_t> only_for = std::nullopt) = 0;

  // kPermissionDenied: replayed, expired, made for another uid, or not a credential of this
  // cluster's key; kUnavailable: the service is away.
  virtual Result<Decoded> decode(std::string_view credential) = 0;
};

struct MungeOptions {
  std::string socket;     // "" = libmunge's default
  int ttl_seconds = 120;  // how long a credential may travel; clocks must agree within it
};
// kUnavailable when libmunge cannot make a context. Each call of encode/decode uses a context of
// its own, as libmunge's contexts are not thread-safe. A credential is accepted once per munged
// (munge(7): replay detection is per host; all endpoints of one controller are one host).
Result<std::shared_ptr<Authenticator>> make_munge_authenticator(const MungeOptions& options = {});

}  // namespace flextrain::protocol
