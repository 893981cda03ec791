// SPDX-License-Identifier: MIT
#include "trainer/run/metrics_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "trainer/run/stop_signal.h"

namespace flextrain::trainer {
namespace {
constexpr std::chrono::seconds kLockPatience{45};  // as for the checkpoint directory
constexpr std::chrono::seconds kReopenPause{5};
constexpr size_t kMostWaiting = size_t{32} << 20;
}  // namespace

SplitMetrics split_metrics(const std::string& text, int64_t last_step) {
  SplitMetrics split;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    const bool whole = end != std::string::npos;  // else cut off by a crash
    const std::string line = text.substr(begin, whole ? end - begin : end);
    begin = whole ? end + 1 : text.size();
    const Result<Json> json = parse_json(line, "metrics line");
    const auto step = decode_json("metrics line", [&] {
      return json.ok() ? json->at("step").get<int64_t>() : last_step + 1;
    });
    const bool keep = whole && step.ok() && *step <= last_step;
    (keep ? split.kept : split.undone) += line + "\n";
  }
  return split;
}

Result<MetricsFile> MetricsFile::open(const std::string& path, int64_t last_step) {
  MetricsFile file(path, last_step);
  RETURN_IF_ERROR(file.attach(kLockPatience));
  return file;
}

MetricsFile MetricsFile::waiting_for(const std::string& path, int64_t last_step) {
  MetricsFile file(path, last_step);
  file.tried_ = std::chrono::steady_clock::now() - kReopenPause;
  return file;
}

Status MetricsFile::attach(std::chrono::seconds patience) {
  tried_ = std::chrono::steady_clock::now();
  ASSIGN_OR_RETURN(FileLock lock, FileLock::acquire(path_ + ".lock", patience, stop_requested));
  const Result<std::string> old = read_file(path_);
  if (!old.ok() && old.status().code() != StatusCode::kNotFound) return old.status();
  if (old.ok()) {
    const SplitMetrics split = split_metrics(*old, last_step_);
    if (!split.undone.empty()) {
      const std::string earlier = read_file(path_ + ".undone").value_or("");
      RETURN_IF_ERROR(write_file_atomically(path_ + ".undone", earlier + split.undone));
      RETURN_IF_ERROR(write_file_atomically(path_, split.kept));
    }
  }
  fd_ = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0644);
  if (fd_ < 0) return permission_denied("cannot open '{}': {}", path_, std::strerror(errno));
  lock_.emplace(std::move(lock));
  return {};
}

MetricsFile::MetricsFile(MetricsFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      path_(std::move(other.path_)),
      last_step_(other.last_step_),
      lock_(std::move(other.lock_)),
      tried_(other.tried_),
      waiting_(std::move(other.waiting_)),
      waiting_lines_(other.waiting_lines_) {}

MetricsFile::~MetricsFile() {
  if (fd_ >= 0) ::close(fd_);
}

Status MetricsFile::append(const StepMetrics& m) {
  Json json = {{"step", m.step},
               {"consumed_samples", m.consumed_samples},
               {"loss", m.loss},
               {"loss_hex", format_hex_double(m.loss)},
               {"lr", m.learning_rate},
               {"grad_norm", m.grad_norm},
               {"tokens_per_second", m.tokens_per_second},
               {"step_seconds", m.step_seconds},
               {"gpus", m.gpus},
               {"plan_id", m.plan_id}};
  if (!m.mtp_losses.empty()) {
    json["mtp_losses"] = m.mtp_losses;
    for (const double loss : m.mtp_losses) {
      json["mtp_losses_hex"].push_back(format_hex_double(loss));
    }
  }
  if (m.eval_loss.has_value()) {
    json["eval_loss"] = *m.eval_loss;
    json["eval_loss_hex"] = format_hex_double(*m.eval_loss);
  }
  if (waiting_.size() > kMostWaiting) {
    const size_t cut = waiting_.find('\n', waiting_.size() / 2) + 1;
    log_warning("{} lines of '{}' are given up: too many wait",
                std::count(waiting_.begin(), waiting_.begin() + static_cast<long>(cut), '\n'),
                path_);
    waiting_.erase(0, cut);
  }
  waiting_ += json.dump() + "\n";
  waiting_lines_ = std::count(waiting_.begin(), waiting_.end(), '\n');
  if (fd_ < 0) {
    if (std::chrono::steady_clock::now() - tried_ < kReopenPause) {
      return unavailable("'{}' cannot be written", path_);
    }
    RETURN_IF_ERROR(attach(std::chrono::seconds(0)));
  }
  struct stat before = {};
  if (::fstat(fd_, &before) != 0) {
    return internal_error("cannot look at '{}': {}", path_, std::strerror(errno));
  }
  errno = ENOSPC;  // what a write that ends early means
  const ssize_t written = ::write(fd_, waiting_.data(), waiting_.size());
  if (written != static_cast<ssize_t>(waiting_.size())) {
    const int error = errno;
    // No half lines: the whole comes with the next step.
    if (written > 0) (void)!::ftruncate(fd_, before.st_size);
    return resource_exhausted("cannot append to '{}': {}", path_, std::strerror(error));
  }
  waiting_.clear();
  waiting_lines_ = 0;
  return {};
}

}  // namespace flextrain::trainer
