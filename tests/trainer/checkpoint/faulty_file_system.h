// SPDX-License-Identifier: MIT
// A FileSystem that counts its writing operations and fails, or kills the process, at one of them.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "trainer/checkpoint/file_system.h"

namespace flextrain::trainer {

enum class Fault {
  kNone,
  kIoError,     // the operation does nothing and fails
  kNoSpace,     // from here on every write of data fails half-way: the disk is full
  kKillBefore,  // SIGKILL before the operation
  kKillMidway,  // SIGKILL after half of an append; before any other operation
};

class FaultyFileSystem : public FileSystem {
 public:
  FaultyFileSystem(Fault fault, int at) : fault_(fault), at_(at) {}
  int operations() const { return operations_; }

  Result<std::unique_ptr<WritableFile>> create(const std::string& path) override {
    RETURN_IF_ERROR(step("create", path));
    ASSIGN_OR_RETURN(auto file, real_.create(path));
    return std::unique_ptr<WritableFile>(std::make_unique<File>(*this, std::move(file), path));
  }
  Result<std::string> read(const std::string& path) override {
    if (path.ends_with(unreadable_) && !unreadable_.empty()) {
      return internal_error("cannot read '{}': Input/output error", path);
    }
    return real_.read(path);
  }
  Result<std::vector<std::string>> list(const std::string& path) override {
    return real_.list(path);
  }
  Result<int64_t> file_size(const std::string& path) override { return real_.file_size(path); }
  bool exists(const std::string& path) override { return real_.exists(path); }
  Status make_directories(const std::string& path) override {
    RETURN_IF_ERROR(step("create directory", path));
    return real_.make_directories(path);
  }
  Status rename(const std::string& from, const std::string& to) override {
    RETURN_IF_ERROR(step("rename", from));
    return real_.rename(from, to);
  }
  Status remove_all(const std::string& path) override {
    RETURN_IF_ERROR(step("remove", path));
    return real_.remove_all(path);
  }
  Status sync_directory(const std::string& path) override {
    RETURN_IF_ERROR(step("sync directory", path));
    return real_.sync_directory(path);
  }

  // Reads of paths with this ending fail.
  void make_unreadable(const std::string& ending) { unreadable_ = ending; }

 private:
  class File : public WritableFile {
   public:
    File(FaultyFileSystem& owner, std::unique_ptr<WritableFile> real, std::string path)
        : owner_(owner), real_(std::move(real)), path_(std::move(path)) {}
    Status append(std::string_view data) override {
      if (Status status = owner_.step("write", path_, true); !status.ok()) {
        (void)real_->append(data.substr(0, data.size() / 2));  // a short write
        if (owner_.fault_ == Fault::kKillMidway) ::kill(::getpid(), SIGKILL);
        return status;
      }
      return real_->append(data);
    }
    Status sync() override {
      RETURN_IF_ERROR(owner_.step("sync", path_));
      return real_->sync();
    }
    Status close() override {
      RETURN_IF_ERROR(owner_.step("close", path_));
      return real_->close();
    }

   private:
    FaultyFileSystem& owner_;
    std::unique_ptr<WritableFile> real_;
    std::string path_;
  };

  Status step(const char* action, const std::string& path, bool append = false) {
    const int now = operations_++;
    if (fault_ == Fault::kNoSpace && append && now >= at_) {
      return resource_exhausted("cannot {} '{}': No space left on device", action, path);
    }
    if (now != at_) return {};
    if (fault_ == Fault::kKillBefore || (fault_ == Fault::kKillMidway && !append)) {
      ::kill(::getpid(), SIGKILL);
    }
    if (fault_ == Fault::kIoError || fault_ == Fault::kKillMidway) {
      return internal_error("cannot {} '{}': Input/output error", action, path);
    }
    return {};
  }

  FileSystem& real_ = posix_file_system();
  Fault fault_;
  int at_;
  int operations_ = 0;
  std::string unreadable_;
};

}  // namespace flextrain::trainer
