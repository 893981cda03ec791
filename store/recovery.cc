// SPDX-License-Identifier: MIT
// How a Store notices that its database is not well, and goes on when it is again.
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "base/path.h"
#include "store/open_database.h"
#include "store/store_impl.h"

namespace flextrain::store {
namespace {

constexpr int kHealTimeoutMs = 100;
constexpr std::string_view kMagic("SQLite format 3\0", 16);

// Of the database as such, not of the row in question.
bool is_fault(StatusCode code) {
  return code == StatusCode::kUnavailable || code == StatusCode::kResourceExhausted ||
         code == StatusCode::kPermissionDenied || code == StatusCode::kDataLoss ||
         code == StatusCode::kInternal;
}

}  // namespace

Status Store::Impl::remember_file() {
  struct stat info = {};
  if (::stat(options.path.c_str(), &info) != 0)
    return unavailable("database {}: {}", options.path, std::strerror(errno));
  device = info.st_dev;
  inode = info.st_ino;
  return {};
}

Status Store::Impl::guarded(const std::function<Status()>& body) {
  if (!fault.ok()) return fault;
  Status status = body();
  if (is_fault(status.code()) && fault.ok()) fault = status;
  return status;
}

Status Store::Impl::in_one_transaction(const std::function<Status()>& body) {
  if (in_transaction) return body();  // part of the outer one: a public call inside another
  RETURN_IF_ERROR(connection.execute("BEGIN IMMEDIATE"));
  in_transaction = true;
  Status status = body();
  if (status.ok()) status = connection.execute("COMMIT");
  in_transaction = false;
  if (!status.ok()) {
    const Status rolled_back = connection.execute("ROLLBACK");
    // SQLite itself rolls back on a full disk and on I/O errors.
    if (!rolled_back.ok()) log_debug("store: roll-back: {}", rolled_back.message());
  }
  return status;
}

const Status& Store::fault() const { return impl_->fault; }
int64_t Store::generation() const { return impl_->generation; }

// Neither opens nor closes the file: closing any descriptor of it would drop SQLite's locks on it.
Status Store::check_file() {
  const std::string& path = impl_->options.path;
  Status lost;
  struct stat info = {};
  if (::stat(path.c_str(), &info) != 0) {
    const int error = errno;
    if (error != ENOENT && error != ENOTDIR) {  // no word about the file itself
      impl_->fault = unavailable("database {}: {}", path, std::strerror(error));
      return impl_->fault;
    }
    lost = data_loss("database {} was deleted while in use", path);
  } else if (info.st_dev != impl_->device || info.st_ino != impl_->inode) {
    lost = data_loss("database {} was replaced by another file while in use", path);
  } else if (impl_->connection.first_bytes(kMagic.size()) != kMagic) {
    lost = data_loss("database {} was overwritten: it is no database any more", path);
  }
  if (!lost.ok()) {
    impl_->fault = lost;
    return lost;
  }
  if (const std::string lock = path + ".lock"; !impl_->lock.holds(lock)) {
    const Status taken = impl_->lock.acquire(lock, path);
    if (!taken.ok()) {
      impl_->fault = taken;
      return taken;
    }
    log_warning("store: {} was deleted while in use and is locked again", lock);
  }
  return {};
}

Status Store::heal() {
  Connection& connection = impl_->connection;
  connection.set_busy_timeout(kHealTimeoutMs);
  // As much as a round may write, so that a disk with a little room does not count as well.
  Status status = impl_->in_one_transaction([&]() -> Status {
    RETURN_IF_ERROR(
        connection.execute("INSERT INTO snapshots (content_zstd) VALUES (zeroblob(262144))"));
    return connection.execute(
        fmt::format("DELETE FROM snapshots WHERE id={}", connection.last_insert_id()));
  });
  if (status.ok()) status = connection.execute("PRAGMA incremental_vacuum");
  connection.set_busy_timeout(impl_->options.busy_timeout_ms);
  if (status.ok() || is_fault(status.code())) impl_->fault = status;
  return status;
}

Status Store::reopen() {
  const std::string& path = impl_->options.path;
  impl_->connection.close();
  struct stat info = {};
  if (::stat(path.c_str(), &info) != 0 || info.st_ino != impl_->inode ||
      info.st_dev != impl_->device) {
    // The old file's journal would be applied to the one that is there now.
    for (const char* suffix : {"-wal", "-shm", "-journal"}) ::unlink((path + suffix).c_str());
  }
  Status status = make_directories(parent_folder(path));
  if (status.ok() && !impl_->lock.holds(path + ".lock"))
    status = impl_->lock.acquire(path + ".lock", path);
  if (status.ok()) status = open_database(impl_->options, impl_->connection, impl_->note);
  if (status.ok()) status = impl_->remember_file();
  ++impl_->generation;
  impl_->fault = status;
  return status;
}

Status Store::restore(const OpenState& state) {
  // Not one of these calls looks at a fault: this is what ends it.
  const Status before = std::exchange(impl_->fault, Status());
  Connection& connection = impl_->connection;
  const Status status = impl_->in_one_transaction([&]() -> Status {
    static constexpr std::string_view kWhy = "ended while the database was away";
    for (const std::string& statement :
         {std::string("DELETE FROM intents"), std::string("DELETE FROM holds"),
          fmt::format("UPDATE companions SET state='ended',end_time={},end_reason='{}' WHERE "
                      "end_time=0",
                      state.now, kWhy),
          fmt::format("UPDATE jobs SET state='ended',end_time={},end_reason='{}' WHERE end_time=0",
                      state.now, kWhy),
          fmt::format("UPDATE meta SET value=MAX(value,{}) WHERE key='epoch'", state.epoch),
          fmt::format("UPDATE meta SET value=MAX(value,{}) WHERE key='sequence'",
                      state.sequence)}) {
      RETURN_IF_ERROR(connection.execute(statement));
    }
    for (const auto& row : state.jobs) RETURN_IF_ERROR(put_job(row));
    for (const auto& row : state.companions) RETURN_IF_ERROR(put_companion(row));
    for (const auto& row : state.intents) RETURN_IF_ERROR(put_intent(row));
    for (const auto& row : state.holds) RETURN_IF_ERROR(put_hold(row));
    for (const auto& row : state.tables) RETURN_IF_ERROR(put_scale_table(row));
    for (const auto& row : state.scalings) RETURN_IF_ERROR(put_scaling(connection, row));
    return {};
  });
  impl_->fault = status.ok() ? Status() : is_fault(status.code()) ? status : before;
  return status;
}

}  // namespace flextrain::store
