// SPDX-License-Identifier: MIT
// A munged of a test's own: own key, own socket, restarted or with a wrong clock as the test wants.
#pragma once

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
#include <memory>
#include <string>
#include <thread>

#include "base/text.h"
#include "protocol/auth.h"
#include "tests/temp_folder.h"

namespace flextrain::protocol {

// Where Debian's libfaketime is; "" where it is not installed.
inline std::string faketime_library() {
  for (const char* path : {"/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1",
                           "/usr/lib/aarch64-linux-gnu/faketime/libfaketime.so.1"}) {
    if (::access(path, R_OK) == 0) return path;
  }
  return "";
}

class MungeDaemon {
 public:
  // `key`: "" makes one. `clock`: "" or how far off its clock is, as libfaketime has it ("+600s").
  explicit MungeDaemon(const std::string& key = "", std::string clock = "")
      : clock_(std::move(clock)) {
    ::chmod(folder_.path().c_str(), 0755);
    key_ = key.empty() ? random_hex_id() + random_hex_id() + random_hex_id() : key;
    std::ofstream(folder_.path("key")) << key_;
    ::chmod(folder_.path("key").c_str(), 0400);
    start();
  }
  ~MungeDaemon() { stop(); }

  void start() {
    pid_ = ::fork();
    if (pid_ == 0) {
      const std::string key = "--key-file=" + folder_.path("key"),
                        socket = "--socket=" + this->socket(),
                        pid = "--pid-file=" + folder_.path("pid"),
                        seed = "--seed-file=" + folder_.path("seed"),
                        log = "--log-file=" + folder_.path("log");
      const int null = ::open("/dev/null", O_WRONLY);
      ::dup2(null, 1);
      ::dup2(null, 2);
      if (!clock_.empty()) {
        ::setenv("LD_PRELOAD", faketime_library().c_str(), 1);
        ::setenv("FAKETIME", clock_.c_str(), 1);
        ::setenv("FAKETIME_DONT_FAKE_MONOTONIC", "1", 1);
      }
      for (const char* program : {"munged", "/usr/sbin/munged"}) {
        ::execlp(program, "munged", "--foreground", "--force", key.c_str(), socket.c_str(),
                 pid.c_str(), seed.c_str(), log.c_str(), nullptr);
      }
      ::_exit(127);
    }
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!authenticator()->encode("x").ok()) {
      ASSERT_LT(std::chrono::steady_clock::now(), end) << "munged did not start";
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  void stop() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGTERM);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  void restart() {
    stop();
    start();
  }

  std::string socket() const { return folder_.path("socket"); }
  const std::string& key() const { return key_; }
  std::shared_ptr<Authenticator> authenticator(int ttl_seconds = 60) const {
    return std::move(*make_munge_authenticator({socket(), ttl_seconds}));
  }

 private:
  const TempFolder folder_;
  const std::string clock_;
  std::string key_;
  pid_t pid_ = -1;
};

}  // namespace flextrain::protocol
