// SPDX-License-Identifier: MIT
// A fixture with a folder of its own, removed afterwards.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace flextrain::trainer {

class TempFolder : public testing::Test {
 protected:
  TempFolder() : TempFolder(std::filesystem::temp_directory_path()) {}
  explicit TempFolder(const std::filesystem::path& parent) {
    std::string pattern = (parent / "flextrain-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) std::abort();
    root_ = pattern;
  }
  // Memory where there is some: for tests that sync thousands of small files.
  static std::filesystem::path memory_folder() {
    return ::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : std::filesystem::temp_directory_path();
  }
  ~TempFolder() override {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  // "" gives the folder itself.
  std::string path(const std::string& name) const {
    return name.empty() ? root_ : root_ + "/" + name;
  }

 private:
  std::string root_;
};

}  // namespace flextrain::trainer
