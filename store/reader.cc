// SPDX-License-Identifier: MIT
// Reader's opening, locking and closing; its queries are in queries.cc.
#include <unistd.h>

#include <mutex>

#include "base/log.h"
#include "store/connection.h"
#include "store/store.h"

namespace flextrain::store {

struct Reader::Impl {
  std::mutex mutex;
  Connection connection;
};

Reader::Reader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Reader::~Reader() = default;

Result<std::unique_ptr<Reader>> Reader::open(const std::string& path, int busy_timeout_ms) {
  if (::access(path.c_str(), F_OK) != 0)
    return not_found("database {} does not exist; the controller makes it when it first runs",
                     path);
  auto impl = std::make_unique<Impl>();
  RETURN_IF_ERROR(impl->connection.open(path, busy_timeout_ms));
  // Opened read-write because a WAL database needs its shared memory; the connection itself refuses
  // every write.
  RETURN_IF_ERROR(impl->connection.execute("PRAGMA query_only=ON"));
  RETURN_IF_ERROR(impl->connection.integer("SELECT count(*) FROM sqlite_master").status());
  return std::unique_ptr<Reader>(new Reader(std::move(impl)));
}

// One transaction, so that several listings agree. Were BEGIN to fail, each listing would still be
// consistent in itself and report its own error.
Reader::Guard::Guard(Reader& r) : reader(r), queries(r.impl_->connection) {
  reader.impl_->mutex.lock();
  const Status status = reader.impl_->connection.execute("BEGIN");
  if (!status.ok()) log_debug("store: reader: {}", status.message());
}

Reader::Guard::~Guard() {
  const Status status = reader.impl_->connection.execute("COMMIT");
  if (!status.ok()) log_debug("store: reader: {}", status.message());
  reader.impl_->mutex.unlock();
}

}  // namespace flextrain::store
