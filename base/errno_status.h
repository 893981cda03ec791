// SPDX-License-Identifier: MIT
// The operating system's error numbers as a Status, the same everywhere.
#pragma once

#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/status.h"

namespace flextrain {

// "cannot <action> '<path>': <the system's words>" for `error`, a value of errno: kNotFound,
// kPermissionDenied, kResourceExhausted (full disk or quota), kInvalidArgument (the path is not
// what it should be) or kInternal.
inline Status errno_status(std::string_view action, std::string_view path, int error) {
  const char* text = std::strerror(error);
  switch (error) {
    case ENOENT:
      return not_found("cannot {} '{}': {}", action, path, text);
    case EACCES:
    case EPERM:
    case EROFS:
      return permission_denied("cannot {} '{}': {}", action, path, text);
    case ENOSPC:
    case EDQUOT:
      return resource_exhausted("cannot {} '{}': {}", action, path, text);
    case EISDIR:
    case ENOTDIR:
    case ELOOP:
    case ENAMETOOLONG:
      return invalid_argument("cannot {} '{}': {}", action, path, text);
    default:
      return internal_error("cannot {} '{}': {}", action, path, text);
  }
}

}  // namespace flextrain
