// SPDX-License-Identifier: MIT
// XXH3-128 as hex. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace flextrain::trainer {

// 32 hex digits, most significant first.
std::string xxh3_hex(const void* data, size_t size);
inline std::string xxh3_hex(std::string_view text) { return xxh3_hex(text.data(), text.size()); }

}  // namespace flextrain::trainer
