// SPDX-License-Identifier: MIT
// The real munge, with a munged of our own (own key, own socket).
#include "protocol/framing.h"
#include "tests/protocol/munge_fixture.h"

namespace flextrain::protocol {
namespace {

using namespace std::chrono_literals;

class Munge : public ::testing::Test {
 protected:
  MungeDaemon munged_;
  std::shared_ptr<Authenticator> auth_ = munged_.authenticator();
};

TEST_F(Munge, ProvesUidAndBytes) {
  const auto credential = auth_->encode(std::string("a\0b", 3), ::getuid());
  ASSERT_TRUE(credential.ok()) << credential.status().to_string();
  const auto decoded = auth_->decode(*credential);
  ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
  EXPECT_EQ(decoded->bytes, std::string("a\0b", 3));
  EXPECT_EQ(decoded->uid, ::getuid());
  EXPECT_EQ(decoded->gid, ::getgid());
}

TEST_F(Munge, AReplayIsRefused) {
  const auto credential = auth_->encode("x");
  EXPECT_TRUE(auth_->decode(*credential).ok());
  const auto again = auth_->decode(*credential);
  EXPECT_EQ(again.status().code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(again.status().message(), ::testing::HasSubstr("eplay"));
}

TEST_F(Munge, AnotherReaderIsRefused) {
  const auto credential = auth_->encode("x", ::getuid() + 12345);
  EXPECT_EQ(auth_->decode(*credential).status().code(), StatusCode::kPermissionDenied);
}

TEST_F(Munge, ExpiredIsRefused) {
  const auto brief = munged_.authenticator(/*ttl_seconds=*/1);
  const auto credential = brief->encode("x");
  std::this_thread::sleep_for(2500ms);  // the time to live itself is what is tested
  const Status refused = brief->decode(*credential).status();
  EXPECT_EQ(refused.code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(refused.message(), ::testing::ContainsRegex("made [2-9][0-9]* s ago"));
}

// Two hosts of one cluster whose clocks are apart: the message must say by how much.
TEST_F(Munge, ClocksApartAreNamed) {
  if (faketime_library().empty()) GTEST_SKIP() << "libfaketime is not installed";
  const struct {
    const char* clock;
    const char* says;
  } cases[] = {{"+600s", "made (59[0-9]|60[0-9]|61[0-9]) s in the future"},
               {"-600s", "made (59[0-9]|6[0-9][0-9]) s ago"}};
  for (const auto& c : cases) {
    const MungeDaemon other(munged_.key(), c.clock);
    const auto credential = other.authenticator()->encode("x");
    ASSERT_TRUE(credential.ok()) << credential.status().to_string();
    const Status refused = auth_->decode(*credential).status();
    EXPECT_EQ(refused.code(), StatusCode::kPermissionDenied);
    EXPECT_THAT(refused.message(), ::testing::ContainsRegex(c.says));
  }
}

TEST_F(Munge, AnotherClustersKeyIsRefused) {
  const MungeDaemon foreign;
  const Status refused = auth_->decode(*foreign.authenticator()->encode("x")).status();
  EXPECT_EQ(refused.code(), StatusCode::kPermissionDenied) << refused.to_string();
}

TEST_F(Munge, GarbageIsRefused) {
  for (const char* text : {"", "MUNGE:", "MUNGE:AAAA:", "hello"}) {
    EXPECT_EQ(auth_->decode(text).status().code(), StatusCode::kPermissionDenied) << text;
  }
  std::string credential = *auth_->encode("x");
  credential[credential.size() / 2] = credential[credential.size() / 2] == 'A' ? 'B' : 'A';
  EXPECT_FALSE(auth_->decode(credential).ok());
}

TEST_F(Munge, LargeMessagesPassInChunks) {
  Envelope message;
  message.type = "scale_table";
  message.nonce = "n";
  std::string text;
  while (text.size() < (size_t{2} << 20)) text += random_hex_id();  // does not compress away
  message.body = text;
  const auto body = seal(message, *auth_, ::getuid());
  ASSERT_TRUE(body.ok()) << body.status().to_string();
  const auto opened = open_sealed(*body, *auth_);
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  EXPECT_EQ(opened->envelope.body, message.body);
  EXPECT_EQ(auth_->encode(std::string(size_t{2} << 20, 'x')).status().code(),
            StatusCode::kResourceExhausted)
      << "one credential alone is too small for it";
}

TEST_F(Munge, ADeadMungedIsUnavailable) {
  munged_.stop();
  EXPECT_EQ(auth_->encode("x").status().code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace flextrain::protocol
