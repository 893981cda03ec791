// SPDX-License-Identifier: MIT
#include "protocol/fake_auth.h"

#include "base/text.h"

namespace flextrain::protocol {
namespace {

constexpr std::string_view kPrefix = "FAKE";
constexpr std::string_view kDigits = "0123456789abcdef";

// A credential is one printable line, as munge's are.
std::string to_hex(std::string_view bytes) {
  std::string hex;
  hex.reserve(2 * bytes.size());
  for (const char c : bytes) {
    hex += kDigits[static_cast<unsigned char>(c) >> 4];
    hex += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return hex;
}

Result<std::string> from_hex(std::string_view hex) {
  std::string bytes;
  bytes.reserve(hex.size() / 2);
  if (hex.size() % 2 != 0) return permission_denied("fake credential is cut off");
  for (size_t i = 0; i < hex.size(); i += 2) {
    const size_t high = kDigits.find(hex[i]), low = kDigits.find(hex[i + 1]);
    if (high == std::string_view::npos || low == std::string_view::npos) {
      return permission_denied("fake credential is damaged");
    }
    bytes += static_cast<char>(high << 4 | low);
  }
  return bytes;
}

}  // namespace

void FakeAuthenticator::set_available(bool available) {
  const std::lock_guard lock(mutex_);
  available_ = available;
}

void FakeAuthenticator::set_age(std::chrono::seconds age) {
  const std::lock_guard lock(mutex_);
  age_ = age;
}

Result<std::string> FakeAuthenticator::encode(std::string_view bytes,
                                              std::optional<uid_t> only_for) {
  const std::lock_guard lock(mutex_);
  if (!available_) return unavailable("the fake authentication service is away");
  const int64_t reader = only_for.has_value() ? static_cast<int64_t>(*only_for) : -1;
  return fmt::format("{}:{}:{}:{}:{}:{}", kPrefix, uid_, gid_, reader, random_hex_id(),
                     to_hex(bytes));
}

Result<Decoded> FakeAuthenticator::decode(std::string_view credential) {
  const std::lock_guard lock(mutex_);
  if (!available_) return unavailable("the fake authentication service is away");
  const auto fields = split(credential, ':');
  if (fields.size() != 6 || fields[0] != kPrefix) return permission_denied("not a fake credential");
  ASSIGN_OR_RETURN(const int64_t uid, parse_int(fields[1]));
  ASSIGN_OR_RETURN(const int64_t gid, parse_int(fields[2]));
  ASSIGN_OR_RETURN(const int64_t reader, parse_int(fields[3]));
  if (reader >= 0 && static_cast<uid_t>(reader) != uid_) {
    return permission_denied("fake credential was made for uid {}, not {}", reader, uid_);
  }
  Decoded decoded;
  ASSIGN_OR_RETURN(decoded.bytes, from_hex(fields[5]));
  if (!seen_.insert(fields[4]).second) return permission_denied("fake credential is replayed");
  decoded.uid = static_cast<uid_t>(uid);
  decoded.gid = static_cast<gid_t>(gid);
  decoded.age = age_;
  return decoded;
}

}  // namespace flextrain::protocol
