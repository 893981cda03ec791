// SPDX-License-Identifier: MIT
// JSON ↔ zstd-compressed bytes. Pure. Private to store/.
#pragma once

#include <string_view>

#include "base/json.h"
#include "base/status.h"
#include "store/connection.h"

namespace flextrain::store {

Result<Blob> compress_json(const Json& json);
// kDataLoss for anything that compress_json did not write.
Result<Json> decompress_json(const Blob& blob, std::string_view what);

}  // namespace flextrain::store
