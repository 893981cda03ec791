// SPDX-License-Identifier: MIT
#include "protocol/framing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/text.h"
#include "protocol/fake_auth.h"

namespace flextrain::protocol {
namespace {

Envelope with_payload(size_t bytes) {
  Envelope m;
  m.type = "scale_table";
  m.nonce = "n";
  m.body = {{"table", std::string(bytes, 'x')}};
  return m;
}

TEST(Framing, SmallMessageIsOneCredential) {
  FakeAuthenticator alice(1001, 1002), controller(0, 0);
  const auto body = seal(with_payload(10), alice, std::nullopt);
  ASSERT_TRUE(body.ok());
  EXPECT_EQ(body->find('\n'), std::string::npos);
  const auto opened = open_sealed(*body, controller);
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  EXPECT_EQ(opened->uid, 1001u);
  EXPECT_EQ(opened->gid, 1002u);
}

TEST(Framing, LargeMessagesAreChunked) {
  FakeAuthenticator alice(1001, 1001), controller(0, 0);
  for (const size_t size :
       {kChunkBytes - 200, kChunkBytes, 3 * kChunkBytes, 20 * kChunkBytes + 7}) {
    const Envelope message = with_payload(size);
    const auto body = seal(message, alice, std::nullopt);
    ASSERT_TRUE(body.ok());
    for (const auto& line : split(*body, '\n')) EXPECT_LT(line.size(), size_t{1} << 20);
    const auto opened = open_sealed(*body, controller);
    ASSERT_TRUE(opened.ok()) << opened.status().to_string();
    EXPECT_EQ(opened->envelope.body, message.body);
  }
}

TEST(Framing, TooLargeIsRefusedBeforeSending) {
  FakeAuthenticator alice(1001, 1001);
  EXPECT_EQ(seal(with_payload(kMaxMessageBytes), alice, std::nullopt).status().code(),
            StatusCode::kResourceExhausted);
}

TEST(Framing, DamagedBodiesAreRefused) {
  FakeAuthenticator alice(1001, 1001), bob(1002, 1002);
  const auto seal_lines = [](Authenticator& auth) {
    return split(*seal(with_payload(2 * kChunkBytes), auth, std::nullopt), '\n');
  };
  const auto open_lines = [](std::vector<std::string> lines) {
    FakeAuthenticator controller(0, 0);
    std::string body;
    for (const auto& line : lines) body += (body.empty() ? "" : "\n") + line;
    return open_sealed(body, controller).status();
  };
  const auto a = seal_lines(alice), a2 = seal_lines(alice), b = seal_lines(bob);
  ASSERT_EQ(a.size(), 3u);
  EXPECT_TRUE(open_lines(a).ok());
  EXPECT_FALSE(open_lines({a[0], a[1]}).ok()) << "a chunk is missing";
  EXPECT_FALSE(open_lines({a[0], a[2], a[1]}).ok()) << "chunks in the wrong order";
  EXPECT_FALSE(open_lines({a[1], a[2]}).ok()) << "the first chunk is missing";
  EXPECT_FALSE(open_lines({a[0], a[1], a[1]}).ok()) << "a chunk twice";
  EXPECT_FALSE(open_lines({a[0], a2[1], a[2]}).ok()) << "a chunk of another message";
  EXPECT_FALSE(open_lines({a[0], b[1], a[2]}).ok()) << "a chunk of another user";
  EXPECT_FALSE(open_lines({a[0], a[1], a[2], a2[0]}).ok()) << "something follows";
  EXPECT_FALSE(open_lines({}).ok()) << "empty";
  EXPECT_FALSE(open_lines({"garbage"}).ok());
  FakeAuthenticator controller(0, 0);
  for (const char* text :
       {"", "\n", "flextrain-chunk", "flextrain-chunk a 0 1\n", "flextrain-chunk a 0 1\n{",
        "flextrain-chunk a 0 0\n{}", "flextrain-chunk a 0 999999999\n{}",
        "flextrain-chunk a x 1\n{}", "flextrain-chunk a -1 1\n{}", "flextrain-chunk a 0 1\n[]"}) {
    EXPECT_FALSE(open_sealed(*alice.encode(text, std::nullopt), controller).ok()) << text;
  }
}

TEST(Framing, RestrictedAndReplayedCredentialsAreRefused) {
  FakeAuthenticator alice(1001, 1001), bob(1002, 1002);
  const auto body = seal(with_payload(1), alice, 1001);
  EXPECT_EQ(open_sealed(*body, bob).status().code(), StatusCode::kPermissionDenied);
  EXPECT_TRUE(open_sealed(*body, alice).ok());
  EXPECT_EQ(open_sealed(*body, alice).status().code(), StatusCode::kPermissionDenied);
}

TEST(Framing, BytesThatAreNotUtf8DoNotThrow) {
  FakeAuthenticator alice(1001, 1001);
  Envelope m = with_payload(1);
  m.body["table"] = "\xff\xfe";
  EXPECT_TRUE(open_sealed(*seal(m, alice, std::nullopt), alice).ok());
}

}  // namespace
}  // namespace flextrain::protocol
