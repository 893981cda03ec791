// SPDX-License-Identifier: MIT
#include "trainer/checkpoint/file_system.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/errno_status.h"
#include "base/file.h"
#include "base/path.h"

namespace flextrain::trainer {
namespace {

namespace fs = std::filesystem;

class PosixFile : public WritableFile {
 public:
  PosixFile(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  ~PosixFile() override {
    if (fd_ >= 0) ::close(fd_);
  }
  Status append(std::string_view data) override {
    while (!data.empty()) {
      const ssize_t written = ::write(fd_, data.data(), data.size());
      if (written < 0) {
        if (errno == EINTR) continue;
        return errno_status("write", path_, errno);
      }
      data.remove_prefix(static_cast<size_t>(written));
    }
    return {};
  }
  Status sync() override {
    if (::fsync(fd_) != 0) return errno_status("sync", path_, errno);
    return {};
  }
  Status close() override {
    if (::close(std::exchange(fd_, -1)) != 0) return errno_status("close", path_, errno);
    return {};
  }

 private:
  int fd_;
  std::string path_;
};

class PosixFileSystem : public FileSystem {
 public:
  Result<std::unique_ptr<WritableFile>> create(const std::string& path) override {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) return errno_status("create", path, errno);
    return std::unique_ptr<WritableFile>(std::make_unique<PosixFile>(fd, path));
  }
  Result<std::string> read(const std::string& path) override {
    return read_file(path, size_t{1} << 40);
  }
  Result<std::vector<std::string>> list(const std::string& path) override {
    std::error_code error;
    std::vector<std::string> names;
    fs::directory_iterator entry(path, error);
    for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
      names.push_back(entry->path().filename().string());
    }
    if (error) return errno_status("list", path, error.value());
    std::sort(names.begin(), names.end());
    return names;
  }
  Result<int64_t> file_size(const std::string& path) override {
    std::error_code error;
    const auto size = fs::file_size(path, error);
    if (error) return errno_status("measure", path, error.value());
    return static_cast<int64_t>(size);
  }
  bool exists(const std::string& path) override {
    std::error_code error;
    return fs::exists(path, error);
  }
  Status make_directories(const std::string& path) override {
    return flextrain::make_directories(path);
  }
  Status rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) {
      return errno_status(fmt::format("rename '{}' to", from), to, errno);
    }
    return {};
  }
  Status remove_all(const std::string& path) override {
    std::error_code error;
    fs::remove_all(path, error);
    if (error) return errno_status("remove", path, error.value());
    return {};
  }
  Status sync_directory(const std::string& path) override {
    return flextrain::sync_directory(path);
  }
};

}  // namespace

FileSystem& posix_file_system() {
  static PosixFileSystem files;
  return files;
}

Status write_synced(FileSystem& files, const std::string& path, std::string_view data) {
  ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file, files.create(path));
  RETURN_IF_ERROR(file->append(data));
  RETURN_IF_ERROR(file->sync());
  return file->close();
}

Status replace_file(FileSystem& files, const std::string& path, std::string_view data) {
  const std::string temp = path + ".tmp";
  Status status = write_synced(files, temp, data);
  if (status.ok()) status = files.rename(temp, path);
  if (!status.ok()) {
    (void)files.remove_all(temp);
    return status;
  }
  return files.sync_directory(parent_folder(path));
}

}  // namespace flextrain::trainer
