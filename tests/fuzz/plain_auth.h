// SPDX-License-Identifier: MIT
// Credentials that a mutation can read: the bytes themselves on one line, a line end within them as
// \x1f. "!" before them makes them root's, anything else is uid 1001's. What a fuzzer finds behind
// it is what a user with a good munge credential could send.
#pragma once

#include <algorithm>

#include "protocol/auth.h"

namespace flextrain::fuzz {

class PlainAuthenticator : public protocol::Authenticator {
 public:
  Result<std::string> encode(std::string_view bytes, std::optional<uid_t>) override {
    std::string text(bytes);
    std::replace(text.begin(), text.end(), '\n', '\x1f');
    return text;
  }
  Result<protocol::Decoded> decode(std::string_view credential) override {
    protocol::Decoded decoded;
    const bool root = credential.starts_with('!');
    if (root) credential.remove_prefix(1);
    decoded.uid = decoded.gid = root ? 0 : 1001;
    decoded.bytes = credential;
    std::replace(decoded.bytes.begin(), decoded.bytes.end(), '\x1f', '\n');
    return decoded;
  }
};

}  // namespace flextrain::fuzz
