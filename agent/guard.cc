// SPDX-License-Identifier: MIT
#include "agent/guard.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <optional>
#include <utility>

#include "agent/process.h"
#include "base/text.h"

namespace flextrain::agent {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kUsage = 64;                       // sysexits(3) EX_USAGE
constexpr int kCannotRun = 127;                  // as a shell
constexpr std::chrono::seconds kPatience{5};     // for CMD once the agent is gone
constexpr timespec kTurn{0, 200 * 1000 * 1000};  // a look at the agent without any signal

pid_t start_child(const std::vector<std::string>& words) {
  const std::vector<char*> argv = exec_arguments(words);
  const pid_t guard = ::getpid();
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);  // the guard has one thread: sent once
  if (::getppid() != guard) ::_exit(kCannotRun);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execvp(argv[0], argv.data());
  fmt::print(stderr, "flextrain-agent guard: cannot run '{}': {}\n", argv[0], std::strerror(errno));
  ::_exit(kCannotRun);
}

// Waits for the child and passes signals on. Its wait status; that of a killed one when it has
// outlived the agent for too long.
int watch(pid_t child, pid_t agent) {
  sigset_t all;
  sigfillset(&all);
  bool told_to_end = false;
  const auto tell = [&](int number) {
    if (number == SIGTERM && std::exchange(told_to_end, true)) return;
    ::kill(child, number);
  };
  std::optional<Clock::time_point> gone;
  for (;;) {
    siginfo_t info{};
    const int number = ::sigtimedwait(&all, &info, &kTurn);
    int status = 0;
    if (::waitpid(child, &status, WNOHANG) == child) return status;
    // Slurm's signals to all processes of a step reach the child directly.
    const bool agents = number > 0 && number != SIGCHLD && info.si_pid == agent;
    if (agents) tell(number);
    if (!gone && ::getppid() != agent) {
      gone = Clock::now();
      tell(SIGTERM);
      tell(SIGCONT);  // a stopped one would never see it
    }
    if (gone && Clock::now() - *gone > kPatience) return SIGKILL;
  }
}

}  // namespace

int run_guard(const std::vector<std::string>& words) {
  const Result<int64_t> agent =
      words.size() < 2 ? invalid_argument("too few words") : parse_int(words[0]);
  if (!agent.ok()) {
    fmt::print(stderr, "flextrain-agent guard: usage: guard AGENT_PID CMD…\n");
    return kUsage;
  }
  sigset_t all;
  sigfillset(&all);
  ::sigprocmask(SIG_BLOCK, &all, nullptr);
  if (::getppid() != static_cast<pid_t>(*agent)) return kCannotRun;
  const pid_t child = start_child({words.begin() + 1, words.end()});
  if (child < 0) {
    fmt::print(stderr, "flextrain-agent guard: cannot fork: {}\n", std::strerror(errno));
    return kCannotRun;
  }
  const int status = watch(child, static_cast<pid_t>(*agent));
  if (::getppid() != static_cast<pid_t>(*agent)) kill_session(::getpid());
  return shell_code(status);
}

}  // namespace flextrain::agent
