// SPDX-License-Identifier: MIT
// The real munge, with a munged of our own (own key, own socket).
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "base/text.h"
#include "protocol/auth.h"
#include "protocol/framing.h"
#include "tests/temp_folder.h"

namespace flextrain::protocol {
namespace {

using namespace std::chrono_literals;

class Munge : public ::testing::Test {
 protected:
  void SetUp() override {
    ::chmod(dir_.c_str(), 0755);
    socket_ = dir_ + "/socket";
    std::ofstream(dir_ + "/key") << random_hex_id() << random_hex_id() << random_hex_id();
    ::chmod((dir_ + "/key").c_str(), 0400);
    pid_ = ::fork();
    if (pid_ == 0) {
      const std::string key = "--key-file=" + dir_ + "/key", socket = "--socket=" + socket_,
                        pid = "--pid-file=" + dir_ + "/pid", seed = "--seed-file=" + dir_ + "/seed",
                        log = "--log-file=" + dir_ + "/log";
      const int null = ::open("/dev/null", O_WRONLY);
      ::dup2(null, 1);
      ::dup2(null, 2);
      ::execlp("munged", "munged", "--foreground", "--force", key.c_str(), socket.c_str(),
               pid.c_str(), seed.c_str(), log.c_str(), nullptr);
      ::execl("/usr/sbin/munged", "munged", "--foreground", "--force", key.c_str(), socket.c_str(),
              pid.c_str(), seed.c_str(), log.c_str(), nullptr);
      ::_exit(127);
    }
    auth_ = std::move(*make_munge_authenticator({socket_, 60}));
    const auto end = std::chrono::steady_clock::now() + 10s;
    while (!auth_->encode("x").ok()) {
      ASSERT_LT(std::chrono::steady_clock::now(), end) << "munged did not start";
      std::this_thread::sleep_for(20ms);
    }
  }
  void TearDown() override {
    if (pid_ > 0) {
      ::kill(pid_, SIGTERM);
      ::waitpid(pid_, nullptr, 0);
    }
  }

  TempFolder folder_;
  const std::string& dir_ = folder_.path();
  std::string socket_;
  pid_t pid_ = -1;
  std::shared_ptr<Authenticator> auth_;
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
  const auto brief = std::move(*make_munge_authenticator({socket_, 1}));
  const auto credential = brief->encode("x");
  std::this_thread::sleep_for(2500ms);  // the time to live itself is what is tested
  EXPECT_EQ(brief->decode(*credential).status().code(), StatusCode::kPermissionDenied);
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
  ::kill(pid_, SIGTERM);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
  EXPECT_EQ(auth_->encode("x").status().code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace flextrain::protocol
