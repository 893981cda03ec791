// SPDX-License-Identifier: MIT
// The fields of each listing (docs/sflex.md) and which of them are shown by default. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/columns.h"

namespace flextrain::cli {

struct Listing {
  std::string what;  // QueryRequest::what
  std::vector<Field> fields;
  std::string default_format;
};
const Listing& jobs_listing();
const Listing& decisions_listing();
const Listing& table_listing();
const Listing& companions_listing();
const Listing& idle_listing();

}  // namespace flextrain::cli
