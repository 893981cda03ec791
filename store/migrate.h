// SPDX-License-Identifier: MIT
// Brings a database's schema to the newest version. Private to store/.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "store/connection.h"

namespace flextrain::store {

struct Migration {
  std::string name;  // file name under sql/
  std::string sql;
};
// The files of sql/, in order; migration i brings the schema from version i to i+1.
const std::vector<Migration>& builtin_migrations();

// Applies what is missing, each in a transaction of its own together with the version number
// (PRAGMA user_version). kFailedPrecondition when the database is newer than `migrations`.
Status migrate(Connection& connection, const std::vector<Migration>& migrations);

}  // namespace flextrain::store
