// SPDX-License-Identifier: MIT
#include "store/open_database.h"

#include <fcntl.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>

#include "base/file.h"
#include "base/path.h"
#include "store/migrate.h"

namespace flextrain::store {
namespace {

// SQLite would create the file with the umask's rights; ours must be private from the start. Its
// side files take the same mode.
Status create_private(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return unavailable("database {}: {}", path, std::strerror(errno));
  ::close(fd);
  return {};
}

Result<bool> on_network(const OpenOptions& options) {
  if (options.statfs_magic) return is_network_file_system(*options.statfs_magic);
  struct statfs info = {};
  if (::statfs(options.path.c_str(), &info) != 0)
    return unavailable("statfs {}: {}", options.path, std::strerror(errno));
  return is_network_file_system(info.f_type);
}

Status set_journal(Connection& connection, bool network) {
  if (network) {
    // Leaving WAL maps its shared memory unless the lock is exclusive (SQLite's "WAL without shared
    // memory"), and that memory is what a network file system cannot share.
    RETURN_IF_ERROR(connection.execute("PRAGMA locking_mode=EXCLUSIVE"));
    ASSIGN_OR_RETURN(const std::string mode, connection.text("PRAGMA journal_mode=DELETE"));
    if (mode != "delete")
      return unavailable("database {}: cannot leave journal mode {}", connection.path(), mode);
    RETURN_IF_ERROR(connection.execute("PRAGMA locking_mode=NORMAL"));
    return connection.integer("SELECT count(*) FROM sqlite_master").status();  // drops the lock
  }
  ASSIGN_OR_RETURN(const std::string mode, connection.text("PRAGMA journal_mode=WAL"));
  if (mode != "wal")
    return unavailable("database {}: journal mode is {} instead of wal", connection.path(), mode);
  return {};
}

Status quick_check(Connection& connection) {
  ASSIGN_OR_RETURN(std::string answer, connection.text("PRAGMA quick_check(1)"));
  std::replace(answer.begin(), answer.end(), '\n', ' ');
  if (answer != "ok") return data_loss("database {} is damaged: {}", connection.path(), answer);
  return {};
}

// A key and not a value of meta, whose values are numbers.
constexpr std::string_view kOwnerKey = "cluster:";

// The open jobs of another cluster would be taken for this one's, whose queue does not know them.
// Before anything is written, and before a damaged file is looked at: what cannot be read here has
// no owner.
Status check_owner(const OpenOptions& options, Connection& connection) {
  const Result<std::string> owner = connection.text(fmt::format(
      "SELECT substr(key,{}) FROM meta WHERE key LIKE '{}%'", kOwnerKey.size() + 1, kOwnerKey));
  if (options.cluster.empty() || !owner.ok() || *owner == options.cluster) return {};
  return failed_precondition(
      "database {} is of cluster '{}' and this is '{}': each cluster needs one of its own "
      "(DatabasePath); after a change of ClusterName, move the old one away",
      options.path, *owner, options.cluster);
}

Status set_owner(const OpenOptions& options, Connection& connection) {
  if (options.cluster.empty()) return {};
  Statement insert = connection.prepare("INSERT OR IGNORE INTO meta VALUES (?,1)");
  insert.bind(fmt::format("{}{}", kOwnerKey, options.cluster));
  return insert.run();
}

Status open_once(const OpenOptions& options, Connection& connection) {
  RETURN_IF_ERROR(create_private(options.path));
  ASSIGN_OR_RETURN(const bool network, on_network(options));
  RETURN_IF_ERROR(connection.open(options.path, options.busy_timeout_ms));
  RETURN_IF_ERROR(check_owner(options, connection));
  // auto_vacuum takes effect only before the first table exists.
  RETURN_IF_ERROR(connection.execute("PRAGMA auto_vacuum=INCREMENTAL"));
  RETURN_IF_ERROR(set_journal(connection, network));
  // FULL: an intent must be on the disk before it is acted upon, also through a power loss.
  RETURN_IF_ERROR(connection.execute("PRAGMA synchronous=FULL"));
  RETURN_IF_ERROR(quick_check(connection));
  RETURN_IF_ERROR(migrate(connection, builtin_migrations()));
  RETURN_IF_ERROR(set_owner(options, connection));
  if (options.max_pages > 0)
    RETURN_IF_ERROR(
        connection.integer(fmt::format("PRAGMA max_page_count={}", options.max_pages)).status());
  return {};
}

Result<std::string> move_aside(const std::string& path) {
  const std::time_t now = std::time(nullptr);
  std::tm utc = {};
  ::gmtime_r(&now, &utc);
  char stamp[32];
  std::strftime(stamp, sizeof stamp, "%Y%m%dT%H%M%SZ", &utc);
  std::string target = fmt::format("{}.corrupt-{}", path, stamp);
  for (int i = 2; ::access(target.c_str(), F_OK) == 0; ++i)
    target = fmt::format("{}.corrupt-{}.{}", path, stamp, i);
  if (std::rename(path.c_str(), target.c_str()) != 0)
    return unavailable("rename {} to {}: {}", path, target, std::strerror(errno));
  // A journal left behind would be applied to the new database.
  for (const char* suffix : {"-wal", "-shm", "-journal"}) {
    const std::string side = path + suffix;
    if (std::rename(side.c_str(), (target + suffix).c_str()) != 0 && errno != ENOENT)
      return unavailable("rename {}: {}", side, std::strerror(errno));
  }
  RETURN_IF_ERROR(sync_directory(parent_folder(path)));
  return target;
}

}  // namespace

Status open_database(const OpenOptions& options, Connection& connection, std::string& note) {
  Status status = open_once(options, connection);
  note.clear();
  if (status.code() == StatusCode::kDataLoss) {
    connection.close();
    ASSIGN_OR_RETURN(const std::string target, move_aside(options.path));
    note = fmt::format(
        "{}; it was moved to {} and a new, empty one begun: history and measured overheads are "
        "gone, running jobs are learnt again from Slurm and their agents",
        status.message(), target);
    status = open_once(options, connection);
  }
  if (!status.ok()) connection.close();
  return status;
}

}  // namespace flextrain::store
