// SPDX-License-Identifier: MIT
// From a path to a checked, migrated connection. Private to store/.
#pragma once

#include <string>

#include "store/connection.h"
#include "store/store.h"

namespace flextrain::store {

// quick_check, journal mode by file system, migrations. A damaged file is moved aside and a new one
// begun; `note` then says so, else "".
Status open_database(const OpenOptions& options, Connection& connection, std::string& note);

}  // namespace flextrain::store
