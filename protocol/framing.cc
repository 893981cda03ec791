// SPDX-License-Identifier: MIT
#include "protocol/framing.h"

#include <algorithm>

#include "base/bounded_json.h"
#include "base/text.h"

namespace flextrain::protocol {
namespace {

constexpr std::string_view kMagic = "flextrain-chunk ";

struct Chunk {
  std::string_view id;
  int64_t index = 0, count = 0;
  std::string_view bytes;
};

Result<Chunk> parse_chunk(std::string_view text) {
  const size_t line_end = text.find('\n');
  if (line_end > 256 || !text.starts_with(kMagic)) {  // npos is more than 256
    return data_loss("a credential holds no flextrain message");
  }
  const auto fields = split(text.substr(kMagic.size(), line_end - kMagic.size()), ' ');
  if (fields.size() != 3) return data_loss("a message chunk has a malformed header");
  Chunk chunk;
  chunk.id = text.substr(kMagic.size(), fields[0].size());
  ASSIGN_OR_RETURN(chunk.index, parse_int(fields[1]));
  ASSIGN_OR_RETURN(chunk.count, parse_int(fields[2]));
  chunk.bytes = text.substr(line_end + 1);
  return chunk;
}

}  // namespace

std::string envelope_to_text(const Envelope& envelope) {
  // `replace`: an environment may hold bytes that are not UTF-8; dump() would throw on them.
  return to_json(envelope).dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<Envelope> envelope_from_text(std::string_view text) {
  ASSIGN_OR_RETURN(const Json json,
                   parse_bounded_json(text, "the message", {.memory = kMaxMessageMemory}));
  return from_json<Envelope>(json);
}

Result<std::string> seal(const Envelope& envelope, Authenticator& auth,
                         std::optional<uid_t> only_for) {
  const std::string text = envelope_to_text(envelope);
  RETURN_IF_ERROR(check_message_size(envelope.type, text));
  return seal_text(text, auth, only_for);
}

Status check_message_size(std::string_view type, std::string_view text) {
  if (text.size() <= kMaxMessageBytes) return {};
  return resource_exhausted("a '{}' message of {} bytes is larger than the limit of {} bytes", type,
                            text.size(), kMaxMessageBytes);
}

Result<std::string> seal_text(std::string_view text, Authenticator& auth,
                              std::optional<uid_t> only_for) {
  const size_t count = std::max<size_t>(1, (text.size() + kChunkBytes - 1) / kChunkBytes);
  const std::string id = random_hex_id();
  std::string body;
  for (size_t i = 0; i < count; ++i) {
    std::string chunk = fmt::format("{}{} {} {}\n", kMagic, id, i, count);
    chunk += text.substr(i * kChunkBytes, kChunkBytes);
    ASSIGN_OR_RETURN(std::string credential, auth.encode(chunk, only_for));
    if (i != 0) body += '\n';
    body += credential;
  }
  return body;
}

Result<Opened> open_sealed(std::string_view body, Authenticator& auth) {
  if (body.size() > kMaxBodyBytes) {
    return resource_exhausted("a message body of {} bytes is larger than the limit of {} bytes",
                              body.size(), kMaxBodyBytes);
  }
  Opened opened;
  std::string text, id;
  int64_t count = 1;
  for (int64_t i = 0; i < count; ++i) {
    const size_t end = body.find('\n');
    if (i + 1 < count && end == std::string_view::npos) {
      return data_loss("a message ends after {} of {} chunks", i + 1, count);
    }
    // Strict: nothing may follow the last chunk.
    ASSIGN_OR_RETURN(Decoded decoded, auth.decode(body.substr(0, end)));
    body = end == std::string_view::npos ? std::string_view() : body.substr(end + 1);
    ASSIGN_OR_RETURN(const Chunk chunk, parse_chunk(decoded.bytes));
    if (i == 0) {
      constexpr int64_t kMaxChunks = kMaxMessageBytes / kChunkBytes + 1;
      if (chunk.count < 1 || chunk.count > kMaxChunks) {
        return data_loss("a message claims {} chunks; at most {} are taken", chunk.count,
                         kMaxChunks);
      }
      count = chunk.count;
      id = chunk.id;
      opened.uid = decoded.uid;
      opened.gid = decoded.gid;
    }
    if (decoded.uid != opened.uid || decoded.gid != opened.gid || chunk.id != id ||
        chunk.count != count || chunk.index != i) {
      return permission_denied("a message mixes chunks of different messages or users");
    }
    opened.age = std::max(opened.age, decoded.age);
    text += chunk.bytes;
  }
  if (!body.empty()) return data_loss("a message is followed by {} stray bytes", body.size());
  if (text.size() > kMaxMessageBytes) {
    return resource_exhausted("a message of {} bytes is larger than the limit of {} bytes",
                              text.size(), kMaxMessageBytes);
  }
  opened.bytes = text.size();
  ASSIGN_OR_RETURN(opened.envelope, envelope_from_text(text));
  return opened;
}

}  // namespace flextrain::protocol
