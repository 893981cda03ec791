// SPDX-License-Identifier: MIT
// What a Store holds. Private to store/.
#pragma once

#include <sys/types.h>

#include <string>

#include "store/connection.h"
#include "store/store.h"
#include "store/writer_lock.h"

namespace flextrain::store {

struct Store::Impl {
  OpenOptions options;
  WriterLock lock;  // first in, last out
  Connection connection;
  Queries queries{connection};
  std::string note;
  bool in_transaction = false;
  Status fault;  // the database did not take a write: none is tried until heal()
  dev_t device = 0;
  ino_t inode = 0;
  int64_t generation = 1;

  Status remember_file();
  // `body` unless a fault stands; notes a new one.
  Status guarded(const std::function<Status()>& body);
  // BEGIN … COMMIT, whatever stands.
  Status in_one_transaction(const std::function<Status()>& body);
};

Status put_scaling(Connection& connection, const ScalingRow& row);  // store.cc

}  // namespace flextrain::store
