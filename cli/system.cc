// SPDX-License-Identifier: MIT
#include "cli/system.h"

#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "base/file.h"
#include "protocol/auth.h"
#include "protocol/client.h"
#include "protocol/discovery.h"

extern char** environ;

namespace flextrain::cli {
namespace {

constexpr auto kCommandTimeout = std::chrono::seconds(20);
constexpr size_t kMaxOutput = size_t{64} << 20;

std::string host_list(const std::vector<protocol::HostPort>& hosts) {
  std::string text;
  for (const auto& host : hosts)
    text += fmt::format("{}{}:{}", text.empty() ? "" : ", ", host.host, host.port);
  return text;
}

// Reads the child's output until it ends or the time is up. Returns false on a timeout.
bool read_all(int fd, std::string& output) {
  const auto deadline = std::chrono::steady_clock::now() + kCommandTimeout;
  std::array<char, 65536> buffer;
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    pollfd wait = {fd, POLLIN, 0};
    const int ready = ::poll(&wait, 1, static_cast<int>(left.count()));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    const ssize_t bytes = ::read(fd, buffer.data(), buffer.size());
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) return true;
    if (output.size() < kMaxOutput) output.append(buffer.data(), static_cast<size_t>(bytes));
  }
}

class SystemEnvironment : public Environment {
 public:
  Result<Json> query(const protocol::QueryRequest& request) override {
    return call(protocol::make_request(protocol::kQuery, {}, 0, request));
  }
  Result<Json> command(const protocol::CommandRequest& request) override {
    return call(protocol::make_request(protocol::kCommand, {}, 0, request));
  }

  int64_t now() override { return std::time(nullptr); }

  std::string user() override {
    std::array<char, 16384> buffer;
    passwd entry = {};
    passwd* found = nullptr;
    if (::getpwuid_r(::getuid(), &entry, buffer.data(), buffer.size(), &found) != 0 || !found)
      return std::to_string(::getuid());
    return found->pw_name;
  }

  bool is_root() override { return ::geteuid() == 0; }

  Result<CommandResult> run(const std::vector<std::string>& argv) override {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return unavailable("pipe: {}", std::strerror(errno));
    std::vector<char*> arguments;
    for (const std::string& argument : argv)
      arguments.push_back(const_cast<char*>(argument.c_str()));
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
    pid_t pid = 0;
    const int error =
        ::posix_spawnp(&pid, arguments[0], &actions, nullptr, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    ::close(ends[1]);
    if (error != 0) {
      ::close(ends[0]);
      if (error == ENOENT) return not_found("{} is not in PATH", argv[0]);
      return unavailable("{}: {}", argv[0], std::strerror(error));
    }
    CommandResult result;
    const bool ended = read_all(ends[0], result.output);
    ::close(ends[0]);
    if (!ended) ::kill(pid, SIGKILL);
    int status = 0;
    while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (!ended) return deadline_exceeded("{} did not end in time", argv[0]);
    result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return result;
  }

  Result<std::string> read_file(const std::string& path) override {
    return flextrain::read_file(path);
  }

  Result<std::string> standard_input() override {
    constexpr size_t kMost = size_t{1} << 30;
    std::string text;
    std::array<char, 65536> buffer;
    for (;;) {
      const ssize_t bytes = ::read(STDIN_FILENO, buffer.data(), buffer.size());
      if (bytes < 0 && errno == EINTR) continue;
      if (bytes < 0) return unavailable("standard input cannot be read: {}", std::strerror(errno));
      if (bytes == 0) return text;
      if (text.size() > kMost) return resource_exhausted("standard input holds more than 1 GiB");
      text.append(buffer.data(), static_cast<size_t>(bytes));
    }
  }

  Status write_file(const std::string& path, const std::string& content) override {
    return write_file_atomically(path, content);
  }

  void progress(double share) override {
    constexpr int kWidth = 40;
    if (::isatty(STDERR_FILENO) == 0) return;
    const int done = static_cast<int>(share * kWidth);
    const std::string bar =
        share >= 1 ? fmt::format("\r{:{}}\r", "", kWidth + 8)
                   : fmt::format("\r[{}{}] {:3.0f}%", std::string(static_cast<size_t>(done), '#'),
                                 std::string(static_cast<size_t>(kWidth - done), '.'), share * 100);
    std::fwrite(bar.data(), 1, bar.size(), stderr);
  }

  FileFacts file(const std::string& path) override {
    FileFacts facts;
    struct stat info = {};
    if (::stat(path.c_str(), &info) != 0) return facts;
    facts.exists = true;
    facts.readable = ::access(path.c_str(), R_OK) == 0;
    facts.mode = info.st_mode & 07777;
    facts.owner = info.st_uid;
    facts.size = info.st_size;
    struct statvfs space = {};
    if (::statvfs(path.c_str(), &space) == 0)
      facts.free_bytes =
          static_cast<int64_t>(space.f_bavail) * static_cast<int64_t>(space.f_frsize);
    return facts;
  }

  Status munge_round_trip(const std::string& socket) override {
    protocol::MungeOptions options;
    options.socket = socket;
    ASSIGN_OR_RETURN(const auto auth, protocol::make_munge_authenticator(options));
    ASSIGN_OR_RETURN(const std::string credential, auth->encode("sflex doctor", std::nullopt));
    ASSIGN_OR_RETURN(const protocol::Decoded decoded, auth->decode(credential));
    if (decoded.uid != ::geteuid())
      return permission_denied("munged says that we are uid {}, not {}", decoded.uid, ::geteuid());
    return {};
  }

  std::string variable(const std::string& name) override {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? "" : value;
  }

 private:
  Result<Json> call(protocol::Envelope request) {
    if (client_ == nullptr) RETURN_IF_ERROR(connect());
    Result<protocol::Envelope> response = client_->call(std::move(request));
    if (!response.ok()) {
      if (response.status().code() == StatusCode::kFailedPrecondition)
        return failed_precondition("{}", response.status().message());
      return Status(response.status().code(),
                    fmt::format("the controller cannot be asked at {}: {}", hosts_,
                                response.status().message()));
    }
    return std::move(response->body);
  }

  Status connect() {
    ASSIGN_OR_RETURN(const protocol::ControllerLocation location, protocol::discover_controller());
    ASSIGN_OR_RETURN(auto auth, protocol::make_munge_authenticator());
    protocol::ClientOptions options;
    options.hosts = location.hosts;
    options.controller_uid = location.slurm_uid;
    hosts_ = host_list(location.hosts);
    ASSIGN_OR_RETURN(client_, protocol::make_client(options, std::move(auth)));
    return {};
  }

  std::unique_ptr<protocol::Client> client_;
  std::string hosts_;
};

}  // namespace

std::unique_ptr<Environment> make_system_environment() {
  return std::make_unique<SystemEnvironment>();
}

}  // namespace flextrain::cli
