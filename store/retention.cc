// SPDX-License-Identifier: MIT
// What is forgotten, and when.
#include "store/store_impl.h"

namespace flextrain::store {
namespace {
constexpr int64_t kDay = 24 * 3600;
}

Status Store::run_retention(int64_t now, const Retention& retention) {
  if (retention.days <= 0) return invalid_argument("retention of {} days", retention.days);
  const int64_t cutoff = now - retention.days * kDay;
  // Also on a full disk, where it may be what helps.
  RETURN_IF_ERROR(impl_->in_one_transaction([&]() -> Status {
    // Progress and tables go with their job; a job that has not ended keeps all of its rows.
    static constexpr const char* kGone =
        "NOT EXISTS (SELECT 1 FROM jobs j WHERE j.cluster={0}.cluster AND j.job_id={0}.job_id AND "
        "j.submit_time={0}.submit_time AND j.restart_count={0}.restart_count)";
    const std::string statements[] = {
        fmt::format("DELETE FROM jobs WHERE end_time>0 AND end_time<{}", cutoff),
        fmt::format("DELETE FROM companions WHERE end_time>0 AND end_time<{}", cutoff),
        fmt::format("DELETE FROM scalings WHERE end_time<{}", cutoff),
        fmt::format("DELETE FROM decisions WHERE last_time<{}", cutoff),
        "DELETE FROM snapshots WHERE id NOT IN (SELECT snapshot_id FROM decisions)",
        fmt::format("DELETE FROM arrivals WHERE submit_time<{}", cutoff),
        fmt::format("DELETE FROM idle_samples WHERE time<{}", cutoff),
        fmt::format("DELETE FROM progress WHERE time<{} AND {}", cutoff,
                    fmt::format(fmt::runtime(kGone), "progress")),
        fmt::format("DELETE FROM scale_tables WHERE time<{} AND {}", cutoff,
                    fmt::format(fmt::runtime(kGone), "scale_tables")),
        fmt::format("DELETE FROM holds WHERE job_id>0 AND time<{} AND NOT EXISTS (SELECT 1 FROM "
                    "jobs j WHERE j.cluster=holds.cluster AND j.job_id=holds.job_id AND "
                    "j.submit_time=holds.submit_time)",
                    cutoff),
        fmt::format("UPDATE meta SET value={} WHERE key='last_retention'", now),
    };
    for (const std::string& statement : statements)
      RETURN_IF_ERROR(impl_->connection.execute(statement));
    return {};
  }));
  return impl_->connection.execute("PRAGMA incremental_vacuum");
}

Result<bool> Store::retention_if_due(int64_t now, const Retention& retention) {
  ASSIGN_OR_RETURN(const int64_t last,
                   impl_->connection.integer("SELECT value FROM meta WHERE key='last_retention'"));
  // A clock that was set back must not postpone it for ever.
  if (now >= last && now - last < kDay) return false;
  RETURN_IF_ERROR(run_retention(now, retention));
  return true;
}

}  // namespace flextrain::store
