// SPDX-License-Identifier: MIT
// base: Status/Result, files, configuration text, logging. Includes nothing of flextrain's own.
//
// Errors are values. A Status says what was wrong, where, and what to do; a Result<T> holds a T or
// such a Status. Neither throws.
#pragma once

#include <fmt/core.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace flextrain {

enum class StatusCode {
  kOk,
  kInvalidArgument,     // the caller or the user gave something unusable
  kNotFound,            // the named thing does not exist
  kAlreadyExists,       // creating would overwrite
  kPermissionDenied,    // the caller may not do this
  kFailedPrecondition,  // right request, wrong state (includes a numerics fingerprint mismatch)
  kResourceExhausted,   // out of memory, disk, GPUs, connections
  kUnavailable,         // a peer or service is away; trying again may help
  kDeadlineExceeded,    // it took too long
  kDataLoss,            // damaged or incomplete data on disk or wire
  kAborted,             // stopped on purpose
  kInternal,            // a bug or an unexpected failure of a library
};

// "INVALID_ARGUMENT" and so on, for logs and JSON.
std::string_view status_code_name(StatusCode code);

// Thread-compatible: const access from many threads is fine.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  static Status ok_status() { return {}; }

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }
  // "DATA_LOSS: shard layer-3 …"; "OK" when ok.
  std::string to_string() const;
  // The same code with "context: " before the message; unchanged when ok.
  Status with_context(std::string_view context) const;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

#define FLEXTRAIN_STATUS_CONSTRUCTOR(name, code)                                       \
  template <typename... Args>                                                          \
  Status name(fmt::format_string<Args...> format, Args&&... args) {                    \
    return Status(StatusCode::code, fmt::format(format, std::forward<Args>(args)...)); \
  }
FLEXTRAIN_STATUS_CONSTRUCTOR(invalid_argument, kInvalidArgument)
FLEXTRAIN_STATUS_CONSTRUCTOR(not_found, kNotFound)
FLEXTRAIN_STATUS_CONSTRUCTOR(already_exists, kAlreadyExists)
FLEXTRAIN_STATUS_CONSTRUCTOR(permission_denied, kPermissionDenied)
FLEXTRAIN_STATUS_CONSTRUCTOR(failed_precondition, kFailedPrecondition)
FLEXTRAIN_STATUS_CONSTRUCTOR(resource_exhausted, kResourceExhausted)
FLEXTRAIN_STATUS_CONSTRUCTOR(unavailable, kUnavailable)
FLEXTRAIN_STATUS_CONSTRUCTOR(deadline_exceeded, kDeadlineExceeded)
FLEXTRAIN_STATUS_CONSTRUCTOR(data_loss, kDataLoss)
FLEXTRAIN_STATUS_CONSTRUCTOR(aborted, kAborted)
FLEXTRAIN_STATUS_CONSTRUCTOR(internal_error, kInternal)
#undef FLEXTRAIN_STATUS_CONSTRUCTOR

// A T or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}  // NOLINT: implicit on purpose, `return value;`
  Result(Status status) : status_(std::move(status)) {  // NOLINT: implicit on purpose
    if (status_.ok()) std::abort();                     // an ok Status carries no value: a bug
  }

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  // Precondition: ok().
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return std::move(*value_); }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T&& operator*() && { return std::move(*value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }
  T value_or(T other) const { return ok() ? *value_ : std::move(other); }

 private:
  std::optional<T> value_;
  Status status_;
};

#define FLEXTRAIN_CONCAT_INNER(a, b) a##b
#define FLEXTRAIN_CONCAT(a, b) FLEXTRAIN_CONCAT_INNER(a, b)
// Returns the Status from the enclosing function unless it is ok.
#define RETURN_IF_ERROR(expression)                                                \
  do {                                                                             \
    if (::flextrain::Status status_ = (expression); !status_.ok()) return status_; \
  } while (0)
// ASSIGN_OR_RETURN(auto x, f()): x = the value of f(), or the enclosing function returns its
// Status.
#define ASSIGN_OR_RETURN(lhs, expression) \
  ASSIGN_OR_RETURN_INNER(FLEXTRAIN_CONCAT(result_, __LINE__), lhs, expression)
#define ASSIGN_OR_RETURN_INNER(result, lhs, expression) \
  auto result = (expression);                           \
  if (!result.ok()) return result.status();             \
  lhs = std::move(result).value()

}  // namespace flextrain
