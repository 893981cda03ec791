// SPDX-License-Identifier: MIT
#include "base/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "base/log.h"

namespace flextrain {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kPoll{20};
constexpr std::chrono::seconds kQuiet{1};  // waits up to here are not worth a line

Status open_failure(const std::string& path, int error) {
  const char* text = std::strerror(error);
  if (error == ENOSPC || error == EDQUOT) {
    return resource_exhausted("cannot create the lock file '{}': {}", path, text);
  }
  if (error == EACCES || error == EPERM || error == EROFS) {
    return permission_denied("cannot create the lock file '{}': {}", path, text);
  }
  return invalid_argument("cannot create the lock file '{}': {}", path, text);
}

// What the holder wrote about itself; empty when it has not yet.
std::string holder(int fd) {
  char text[256];
  const ssize_t size = ::pread(fd, text, sizeof text, 0);
  std::string line(text, size > 0 ? static_cast<size_t>(size) : 0);
  return line.substr(0, line.find('\n'));
}

// For people and for the message above; a lock without it is a lock all the same.
void sign(int fd) {
  char host[128] = "";
  ::gethostname(host, sizeof host - 1);
  const std::string line = fmt::format("process {} on {}\n", ::getpid(), host);
  if (::ftruncate(fd, 0) == 0) (void)!::pwrite(fd, line.data(), line.size(), 0);
}

}  // namespace

Result<FileLock> FileLock::acquire(const std::string& path, std::chrono::milliseconds patience,
                                   const std::function<bool()>& give_up) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0644);
  if (fd < 0) return open_failure(path, errno);
  FileLock lock(fd);
  const Clock::time_point begin = Clock::now();
  bool told = false;
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    if (error == EINTR) continue;
    if (error != EWOULDBLOCK) {
      log_warning("'{}' cannot be locked ({}); see to it that no two runs share its directory",
                  path, std::strerror(error));
      return lock;
    }
    const auto waited = Clock::now() - begin;
    if (give_up && give_up()) return aborted("told to stop while waiting for '{}'", path);
    if (waited >= patience) {
      const std::string who = holder(fd);
      return unavailable("'{}' is held by {}; end that first, or use another directory", path,
                         who.empty() ? "another process" : who);
    }
    if (!told && waited > kQuiet) {
      log_info("waiting for '{}', held by {}", path, holder(fd));
      told = true;
    }
    std::this_thread::sleep_for(kPoll);
  }
  sign(fd);
  return lock;
}

FileLock::FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

FileLock::~FileLock() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace flextrain
