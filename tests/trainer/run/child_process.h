// SPDX-License-Identifier: MIT
// Runs a shell command in a child with its output in a file, with deadlines everywhere.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace flextrain::trainer {

// Polls until `condition` holds; false when `seconds` are over.
inline bool wait_until(double seconds, const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

class ChildProcess {
 public:
  // `command` runs as `sh -c "exec command"` in a process group of its own, in `folder`.
  ChildProcess(const std::string& folder, const std::string& command)
      : log_(folder + "/output.log") {
    pid_ = ::fork();
    if (pid_ != 0) return;
    ::setpgid(0, 0);
    const int log = ::open(log_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    const int null = ::open("/dev/null", O_RDONLY);
    ::dup2(null, 0);
    ::dup2(log, 1);
    ::dup2(log, 2);
    if (::chdir(folder.c_str()) != 0) ::_exit(126);
    ::execl("/bin/sh", "sh", "-c", ("exec " + command).c_str(), nullptr);
    ::_exit(127);
  }
  ~ChildProcess() {
    if (code_ < 0) {
      ::kill(-pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
  }

  pid_t pid() const { return pid_; }
  void signal(int number) const { ::kill(pid_, number); }
  // The ranks that mpirun started (its direct children).
  std::vector<pid_t> children() const {
    std::ifstream list("/proc/" + std::to_string(pid_) + "/task/" + std::to_string(pid_) +
                       "/children");
    std::vector<pid_t> pids;
    for (pid_t pid = 0; list >> pid;) pids.push_back(pid);
    return pids;
  }
  bool ended() {
    int status = 0;
    if (code_ < 0 && ::waitpid(pid_, &status, WNOHANG) == pid_) {
      code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    return code_ >= 0;
  }
  // The exit code, 128 + signal for a death by one, -1 when it has not ended in time.
  int wait(double seconds) {
    wait_until(seconds, [this] { return ended(); });
    return code_;
  }
  std::string output() const {
    std::ifstream file(log_);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }

 private:
  std::string log_;
  pid_t pid_ = -1;
  int code_ = -1;
};

}  // namespace flextrain::trainer
