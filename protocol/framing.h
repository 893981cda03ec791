// SPDX-License-Identifier: MIT
// An Envelope as the body of an HTTP message, and back. Pure apart from the Authenticator.
//
// A body is one credential per line. Each holds at most kChunkBytes of the Envelope's JSON after a
// header line "flextrain-chunk ID INDEX COUNT" (munge ends at 1 MiB per credential). All chunks
// must come from one uid and gid, carry one id, and stand in order; otherwise the body is refused.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "protocol/auth.h"
#include "protocol/messages.h"

namespace flextrain::protocol {

inline constexpr size_t kChunkBytes = size_t{256} << 10;
inline constexpr size_t kMaxMessageBytes = size_t{16} << 20;  // JSON of one Envelope
inline constexpr size_t kMaxBodyBytes = size_t{24} << 20;     // the same in base64, with overhead

inline constexpr size_t kMaxMessageMemory = size_t{256} << 20;  // what such JSON may become

// JSON text of an Envelope and back. parse: kDataLoss (no JSON, nested too deep), kInvalidArgument
// (wrong fields), kResourceExhausted (more than kMaxMessageMemory).
std::string envelope_to_text(const Envelope& envelope);
Result<Envelope> envelope_from_text(std::string_view text);

// kResourceExhausted when the JSON exceeds kMaxMessageBytes; errors of Authenticator::encode.
Result<std::string> seal(const Envelope& envelope, Authenticator& auth,
                         std::optional<uid_t> only_for);
// The same of an Envelope that is text already.
Result<std::string> seal_text(std::string_view text, Authenticator& auth,
                              std::optional<uid_t> only_for);
// Why this Envelope cannot be sent, OK when it can: kResourceExhausted, as above.
Status check_message_size(std::string_view type, std::string_view text);

struct Opened {
  Envelope envelope;
  uid_t uid = static_cast<uid_t>(-1);
  gid_t gid = static_cast<gid_t>(-1);
  size_t bytes = 0;             // of the Envelope's JSON
  std::chrono::seconds age{0};  // of the oldest credential (Decoded::age)
};
// kPermissionDenied: a chunk's credential is refused, or chunks are mixed; kDataLoss,
// kInvalidArgument: the text inside is not an Envelope; kResourceExhausted: too large.
Result<Opened> open_sealed(std::string_view body, Authenticator& auth);

}  // namespace flextrain::protocol
