// SPDX-License-Identifier: MIT
#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace flextrain {
namespace {

Status errno_status(std::string_view action, const std::string& path) {
  const int error = errno;
  const char* text = std::strerror(error);
  if (error == ENOENT) return not_found("cannot {} '{}': {}", action, path, text);
  if (error == EACCES || error == EPERM || error == EROFS) {
    return permission_denied("cannot {} '{}': {}", action, path, text);
  }
  // The path itself is what the user has to change.
  if (error == EISDIR || error == ENOTDIR || error == ELOOP || error == ENAMETOOLONG) {
    return invalid_argument("cannot {} '{}': {}", action, path, text);
  }
  if (error == ENOSPC || error == EDQUOT) {
    return resource_exhausted("cannot {} '{}': {}", action, path, text);
  }
  return internal_error("cannot {} '{}': {}", action, path, text);
}

Status write_all(int fd, std::string_view data, const std::string& path) {
  while (!data.empty()) {
    const ssize_t written = ::write(fd, data.data(), data.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return errno_status("write", path);
    }
    data.remove_prefix(static_cast<size_t>(written));
  }
  return {};
}

}  // namespace

Result<std::string> read_file(const std::string& path, size_t max_bytes) {
  // O_NONBLOCK: a pipe put in the file's place must not hold the caller, which may be slurmctld.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return errno_status("open", path);
  struct stat info = {};
  if (::fstat(fd, &info) == 0 && S_ISFIFO(info.st_mode)) {
    ::close(fd);
    return invalid_argument("'{}' is a pipe, not a file", path);
  }
  std::string data;
  char buffer[65536];
  for (;;) {
    const ssize_t got = ::read(fd, buffer, sizeof buffer);
    if (got < 0) {
      if (errno == EINTR) continue;
      Status status = errno_status("read", path);
      ::close(fd);
      return status;
    }
    if (got == 0) break;
    if (data.size() + static_cast<size_t>(got) > max_bytes) {
      ::close(fd);
      return resource_exhausted("'{}' is larger than the limit of {} bytes", path, max_bytes);
    }
    data.append(buffer, static_cast<size_t>(got));
  }
  ::close(fd);
  return data;
}

Status write_file_atomically(const std::string& path, std::string_view data, int mode) {
  std::string temp = path + ".tmp.XXXXXX";
  const int fd = ::mkostemp(temp.data(), O_CLOEXEC);
  if (fd < 0) return errno_status("create a temporary file for", path);
  Status status = write_all(fd, data, temp);
  if (status.ok() && ::fchmod(fd, static_cast<mode_t>(mode)) != 0) {
    status = errno_status("set the mode of", temp);
  }
  if (status.ok() && ::fsync(fd) != 0) status = errno_status("sync", temp);
  if (::close(fd) != 0 && status.ok()) status = errno_status("close", temp);
  if (status.ok() && ::rename(temp.c_str(), path.c_str()) != 0) {
    status = errno_status("rename into place", path);
  }
  if (!status.ok()) {
    ::unlink(temp.c_str());
    return status;
  }
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return sync_directory(".");
  return sync_directory(slash == 0 ? "/" : path.substr(0, slash));
}

Status sync_directory(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return errno_status("open directory", path);
  Status status;
  // Some network file systems refuse fsync on a directory; the rename itself is durable there.
  if (::fsync(fd) != 0 && errno != EINVAL && errno != ENOTSUP) {
    status = errno_status("sync directory", path);
  }
  ::close(fd);
  return status;
}

Status make_directories(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) {
    errno = error.value();
    return errno_status("create directory", path);
  }
  return {};
}

}  // namespace flextrain
