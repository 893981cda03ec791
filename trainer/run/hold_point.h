// SPDX-License-Identifier: MIT
// injection.hold_dir: lets a fault test stop a training at an exact point of its life. A training
// waits at point P (below) while the file hold_dir/P exists, at most two minutes, and shows by the
// file hold_dir/P.here that it does. No effect on values.
//
//   save           in the save that a signal asked for: every layer is written, nothing is in place
//   last-save      the same in the save of the last step
//   init-RANKS     after "init" on so many ranks, before the newest checkpoint is looked for
//
// While hold_dir/slow exists, every step takes at least kSlowStep seconds.
#pragma once

#include <string>

#include "trainer/checkpoint/file_system.h"

namespace flextrain::trainer {

inline constexpr double kSlowStep = 0.5;  // seconds

class HoldPoint {
 public:
  explicit HoldPoint(std::string dir) : dir_(std::move(dir)) {}  // "": never waits
  void wait(const std::string& point) const;
  double step_seconds() const;  // kSlowStep or 0

 private:
  std::string dir_;
};

// Another file system's operations; waits at `point` before the first rename.
class HoldingFileSystem : public FileSystem {
 public:
  HoldingFileSystem(FileSystem& files, const HoldPoint& hold, std::string point)
      : files_(files), hold_(hold), point_(std::move(point)) {}
  Result<std::unique_ptr<WritableFile>> create(const std::string& path) override {
    return files_.create(path);
  }
  Result<std::string> read(const std::string& path) override { return files_.read(path); }
  Result<std::vector<std::string>> list(const std::string& path) override {
    return files_.list(path);
  }
  Result<int64_t> file_size(const std::string& path) override { return files_.file_size(path); }
  bool exists(const std::string& path) override { return files_.exists(path); }
  Status make_directories(const std::string& path) override {
    return files_.make_directories(path);
  }
  Status rename(const std::string& from, const std::string& to) override;
  Status remove_all(const std::string& path) override { return files_.remove_all(path); }
  Status sync_directory(const std::string& path) override { return files_.sync_directory(path); }

 private:
  FileSystem& files_;
  const HoldPoint& hold_;
  std::string point_;
};

}  // namespace flextrain::trainer
