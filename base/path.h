// SPDX-License-Identifier: MIT
// Names of files and folders as text. Pure: nothing is looked up.
#pragma once

#include <string>
#include <string_view>

namespace flextrain {

// The folder that `path` lies in: "/a/b" → "/a", "/b" → "/", "b" → ".".
inline std::string parent_folder(std::string_view path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  return std::string(slash == 0 ? "/" : path.substr(0, slash));
}

}  // namespace flextrain
