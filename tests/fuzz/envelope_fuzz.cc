// SPDX-License-Identifier: MIT
// What stands in munge credentials, by whoever has one: chunks, envelope, every message.
#include "base/bounded_json.h"
#include "protocol/framing.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/plain_auth.h"

namespace flextrain::protocol {
namespace {

std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// A message that was read can be written, and is read again as the same.
template <typename Message>
void try_as(const Json& body) {
  const auto message = from_json<Message>(body);
  if (!message.ok()) return;
  const std::string text = text_of(to_json(*message));
  const auto json = parse_bounded_json(text, "the message");
  FUZZ_REQUIRE(json.ok());
  const auto again = from_json<Message>(*json);
  FUZZ_REQUIRE(again.ok() && text_of(to_json(*again)) == text);
}

}  // namespace
}  // namespace flextrain::protocol

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace flextrain::protocol;
  flextrain::fuzz::PlainAuthenticator auth;
  const auto opened = open_sealed(flextrain::fuzz::text_of(data, size), auth);
  if (!opened.ok()) return 0;
  const auto body = seal(opened->envelope, auth, std::nullopt);
  FUZZ_REQUIRE(body.ok() && open_sealed(*body, auth).ok());
  const flextrain::Json& json = opened->envelope.body;
  try_as<RegisterRequest>(json);
  try_as<RegisterResponse>(json);
  try_as<ScaleTableRequest>(json);
  try_as<ProgressRequest>(json);
  try_as<PollRequest>(json);
  try_as<Order>(json);
  try_as<ReportRequest>(json);
  try_as<NoticeRequest>(json);
  try_as<ByeRequest>(json);
  try_as<QueryRequest>(json);
  return 0;
}
