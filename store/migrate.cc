// SPDX-License-Identifier: MIT
#include "store/migrate.h"

#include "base/log.h"

namespace flextrain::store {

Status migrate(Connection& connection, const std::vector<Migration>& migrations) {
  const auto newest = static_cast<int64_t>(migrations.size());
  ASSIGN_OR_RETURN(int64_t version, connection.integer("PRAGMA user_version"));
  if (version > newest) {
    return failed_precondition(
        "database {} has schema version {}, this release knows up to {}: it was written by a newer "
        "flextrain; install that one or name another file",
        connection.path(), version, newest);
  }
  for (; version < newest; ++version) {
    const Migration& step = migrations[static_cast<size_t>(version)];
    Status status = connection.execute("BEGIN IMMEDIATE");
    if (status.ok()) status = connection.execute(step.sql);
    if (status.ok())
      status = connection.execute(fmt::format("PRAGMA user_version={}", version + 1));
    if (status.ok()) status = connection.execute("COMMIT");
    if (!status.ok()) {
      // When the statement itself ended the transaction there is nothing to roll back.
      const Status rolled_back = connection.execute("ROLLBACK");
      if (!rolled_back.ok()) log_debug("store: roll-back: {}", rolled_back.message());
      return status.with_context("migration " + step.name);
    }
  }
  return {};
}

}  // namespace flextrain::store
