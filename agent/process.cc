// SPDX-License-Identifier: MIT
#include "agent/process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "base/text.h"

extern char** environ;

namespace flextrain::agent {
namespace {

// Forks and execs; `output` replaces standard output unless -1, `output_file` both unless "". Only
// async-signal-safe calls between fork and exec, as other threads exist.
Result<pid_t> spawn(const ProcessSpec& spec, int output) {
  if (spec.argv.empty()) return invalid_argument("no program given");
  ASSIGN_OR_RETURN(const std::string program, find_program(spec.argv[0]));
  const std::vector<char*> argv = exec_arguments(spec.argv);
  const std::vector<char*> environment = exec_arguments(spec.environment);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return resource_exhausted("cannot fork: {}", std::strerror(errno));
  if (pid == 0) {
    ::setsid();
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ::_exit(127);
    for (int number = 1; number < NSIG; ++number) ::signal(number, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    const int null = ::open("/dev/null", O_RDWR);
    if (null >= 0) ::dup2(null, STDIN_FILENO);
    if (!spec.output_file.empty()) {
      const int file = ::open(spec.output_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      ::dup2(file >= 0 ? file : null, STDOUT_FILENO);
      ::dup2(file >= 0 ? file : null, STDERR_FILENO);
    }
    if (output >= 0) ::dup2(output, STDOUT_FILENO);
    ::execve(program.c_str(), argv.data(), environment.data());
    ::_exit(127);
  }
  return pid;
}

}  // namespace

Result<std::string> find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    if (::access(name.c_str(), X_OK) == 0) return name;
    return not_found("cannot run '{}': {}", name, std::strerror(errno));
  }
  const char* path = std::getenv("PATH");
  for (const std::string& dir : split(path == nullptr ? "/usr/bin:/bin" : path, ':')) {
    const std::string candidate = (dir.empty() ? "." : dir) + "/" + name;
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return not_found("program '{}' is not in PATH", name);
}

std::vector<char*> exec_arguments(const std::vector<std::string>& words) {
  std::vector<char*> result;
  for (const std::string& word : words) result.push_back(const_cast<char*>(word.c_str()));
  result.push_back(nullptr);
  return result;
}

namespace {

// Every process of a session but this one.
std::vector<pid_t> session_members(pid_t session) {
  std::vector<pid_t> members;
  std::error_code error;
  std::filesystem::directory_iterator entry("/proc", error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const Result<int64_t> pid = parse_int(entry->path().filename().string());
    if (pid.ok() && *pid != ::getpid() && ::getsid(static_cast<pid_t>(*pid)) == session) {
      members.push_back(static_cast<pid_t>(*pid));
    }
  }
  return members;
}

// In clock ticks since the boot, field 22 of /proc/PID/stat (proc(5)); nullopt: it has ended.
std::optional<uint64_t> start_time(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  if (!std::getline(file, text)) return std::nullopt;
  std::istringstream fields(text.substr(text.rfind(')') + 1));  // the name may hold anything
  std::string state, skipped;
  uint64_t start = 0;
  fields >> state;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  if (!(fields >> start) || state == "Z") return std::nullopt;
  return start;
}

}  // namespace

void kill_session(pid_t session) {
  for (const pid_t pid : session_members(session)) ::kill(pid, SIGKILL);
}

Stragglers::Stragglers(pid_t session) {
  for (const pid_t pid : session_members(session)) {
    if (const auto start = start_time(pid)) members_.push_back({pid, *start});
  }
}

bool Stragglers::any() {
  std::erase_if(members_,
                [](const Member& member) { return start_time(member.pid) != member.start; });
  return !members_.empty();
}

void Stragglers::kill() const {
  for (const Member& member : members_) {
    if (start_time(member.pid) == member.start) ::kill(member.pid, SIGKILL);
  }
}

int shell_code(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

Result<Process> Process::start(const ProcessSpec& spec) {
  ASSIGN_OR_RETURN(const pid_t pid, spawn(spec, -1));
  return Process(pid);
}

Process& Process::operator=(Process&& other) noexcept {
  std::swap(pid_, other.pid_);
  return *this;
}

Process::~Process() {
  if (pid_ <= 0) return;
  signal_group(SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  kill_session(pid_);
}

std::optional<int> Process::poll_exit(std::initializer_list<int> orderly) {
  if (pid_ <= 0) return std::nullopt;
  int status = 0;
  if (::waitpid(pid_, &status, WNOHANG) != pid_) return std::nullopt;
  if (std::find(orderly.begin(), orderly.end(), shell_code(status)) == orderly.end()) {
    kill_session(pid_);
  }
  pid_ = -1;
  return shell_code(status);
}

void Process::signal(int number) {
  if (pid_ > 0) ::kill(pid_, number);
}

void Process::signal_group(int number) {
  if (pid_ <= 0) return;
  ::kill(-pid_, number);
  ::kill(pid_, number);  // it may not have its group yet
}

Result<std::string> first_output_line(const std::vector<std::string>& argv, int seconds) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    return resource_exhausted("cannot make a pipe: {}", std::strerror(errno));
  }
  const Result<pid_t> pid = spawn({argv, own_environment(), ""}, ends[1]);
  ::close(ends[1]);
  if (!pid.ok()) {
    ::close(ends[0]);
    return pid.status();
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  std::string text;
  bool late = false;
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    if (left.count() <= 0) {
      late = true;
      break;
    }
    pollfd p{ends[0], POLLIN, 0};
    const int ready = ::poll(&p, 1, static_cast<int>(left.count()));
    if (ready <= 0) continue;
    char buffer[4096];
    const ssize_t got = ::read(ends[0], buffer, sizeof buffer);
    if (got <= 0) break;
    if (text.size() < (size_t{1} << 20)) text.append(buffer, static_cast<size_t>(got));
  }
  ::close(ends[0]);
  if (late) ::kill(-*pid, SIGKILL), ::kill(*pid, SIGKILL);
  int status = 0;
  ::waitpid(*pid, &status, 0);
  if (late) return deadline_exceeded("'{}' took more than {} s", argv[0], seconds);
  if (shell_code(status) != 0) {
    return internal_error("'{}' ended with exit code {}", argv[0], shell_code(status));
  }
  return std::string(trim(text.substr(0, text.find('\n'))));
}

std::vector<std::string> own_environment() {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) environment.emplace_back(*entry);
  return environment;
}

bool is_slurm_variable(std::string_view name) {
  if (name == "SLURM_CONF") return false;  // says where Slurm is, not which job this is
  return name.starts_with("SLURM_") || name.starts_with("SLURMD_") || name.starts_with("_SLURM_") ||
         name.starts_with("SPANK_") || name.starts_with("SRUN_");
}

}  // namespace flextrain::agent
