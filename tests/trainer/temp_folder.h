// SPDX-License-Identifier: MIT
// A fixture with a folder of its own, removed afterwards.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace flextrain::trainer {

class TempFolder : public testing::Test {
 protected:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "flextrain-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) std::abort();
    root_ = pattern;
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
