// SPDX-License-Identifier: MIT
// What a Store holds. Private to store/.
#pragma once

#include <string>

#include "store/connection.h"
#include "store/store.h"
#include "store/writer_lock.h"

namespace flextrain::store {

struct Store::Impl {
  WriterLock lock;  // first in, last out
  Connection connection;
  Queries queries{connection};
  std::string note;
  bool in_transaction = false;
};

}  // namespace flextrain::store
