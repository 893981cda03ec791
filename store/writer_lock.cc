// SPDX-License-Identifier: MIT
#include "store/writer_lock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "base/text.h"

namespace flextrain::store {

WriterLock::~WriterLock() { release(); }

void WriterLock::release() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

bool WriterLock::holds(const std::string& path) const {
  struct stat locked = {}, there = {};
  return fd_ >= 0 && ::fstat(fd_, &locked) == 0 && ::stat(path.c_str(), &there) == 0 &&
         locked.st_dev == there.st_dev && locked.st_ino == there.st_ino;
}

Status WriterLock::acquire(const std::string& path, const std::string& database) {
  release();
  fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd_ < 0) {
    const int error = errno;
    if (error == ENOENT)
      return not_found("the folder of database {} does not exist; create it or set DatabasePath",
                       database);
    if (error == EACCES || error == EROFS)
      return permission_denied("{}: {}; the controller must be able to write there", path,
                               std::strerror(error));
    return unavailable("{}: {}", path, std::strerror(error));
  }
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  if (::fcntl(fd_, F_OFD_SETLK, &lock) != 0) {
    const int error = errno;
    if (error == EAGAIN || error == EACCES) {
      char holder[256] = {};
      const ssize_t bytes = ::pread(fd_, holder, sizeof holder - 1, 0);
      const std::string_view name = trim(std::string_view(holder, bytes > 0 ? bytes : 0));
      return unavailable(
          "database {} is locked by another process ({}); only one controller may write it",
          database, name.empty() ? "unknown" : name);
    }
    // A file system without locks (NFS without a lock server): SQLite would fail there as well.
    return unavailable("{}: the file system gives no locks ({}); put the database elsewhere", path,
                       std::strerror(error));
  }
  char host[256] = "localhost";
  if (::gethostname(host, sizeof host - 1) != 0) std::strcpy(host, "localhost");
  const std::string text = fmt::format("host {} pid {}\n", host, ::getpid());
  // Only for the message above: a failure to write it is not worth refusing.
  if (::ftruncate(fd_, 0) != 0 || ::pwrite(fd_, text.data(), text.size(), 0) < 0)
    log_debug("store: {}: {}", path, std::strerror(errno));
  return {};
}

}  // namespace flextrain::store
