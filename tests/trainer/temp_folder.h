// SPDX-License-Identifier: MIT
// A fixture with a folder of its own, removed afterwards.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "tests/temp_folder.h"

namespace flextrain::trainer {

class TempFolder : public testing::Test {
 protected:
  TempFolder() = default;
  explicit TempFolder(const std::filesystem::path& parent) : folder_(parent) {}
  // Memory where there is some: for tests that sync thousands of small files.
  static std::filesystem::path memory_folder() {
    return ::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : std::filesystem::temp_directory_path();
  }
  // "" gives the folder itself.
  std::string path(const std::string& name) const {
    return name.empty() ? folder_.path() : folder_.path(name);
  }

 private:
  flextrain::TempFolder folder_;
};

}  // namespace flextrain::trainer
