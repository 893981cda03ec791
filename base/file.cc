// SPDX-License-Identifier: MIT
#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "base/errno_status.h"
#include "base/path.h"

namespace flextrain {
namespace {

Status write_all(int fd, std::string_view data, const std::string& path) {
  while (!data.empty()) {
    const ssize_t written = ::write(fd, data.data(), data.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return errno_status("write", path, errno);
    }
    data.remove_prefix(static_cast<size_t>(written));
  }
  return {};
}

}  // namespace

Result<std::string> read_file(const std::string& path, size_t max_bytes) {
  // O_NONBLOCK: a pipe put in the file's place must not hold the caller, which may be slurmctld.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return errno_status("open", path, errno);
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
      Status status = errno_status("read", path, errno);
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
  if (fd < 0) return errno_status("create a temporary file for", path, errno);
  Status status = write_all(fd, data, temp);
  if (status.ok() && ::fchmod(fd, static_cast<mode_t>(mode)) != 0) {
    status = errno_status("set the mode of", temp, errno);
  }
  if (status.ok() && ::fsync(fd) != 0) status = errno_status("sync", temp, errno);
  if (::close(fd) != 0 && status.ok()) status = errno_status("close", temp, errno);
  if (status.ok() && ::rename(temp.c_str(), path.c_str()) != 0) {
    status = errno_status("rename into place", path, errno);
  }
  if (!status.ok()) {
    ::unlink(temp.c_str());
    return status;
  }
  return sync_directory(parent_folder(path));
}

Status sync_directory(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return errno_status("open directory", path, errno);
  Status status;
  // Some network file systems refuse fsync on a directory; the rename itself is durable there.
  if (::fsync(fd) != 0 && errno != EINVAL && errno != ENOTSUP) {
    status = errno_status("sync directory", path, errno);
  }
  ::close(fd);
  return status;
}

Status make_directories(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return errno_status("create directory", path, error.value());
  return {};
}

}  // namespace flextrain
