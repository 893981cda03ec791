// SPDX-License-Identifier: MIT
// What every fuzz target has: LLVMFuzzerTestOneInput, called with hostile bytes. A target must not
// crash, hang, leak or draw a sanitizer's report, and what it promises is checked with
// FUZZ_REQUIRE. Built by clang the targets are libFuzzer programs (preset `fuzz`, scripts/fuzz); by
// any other compiler replay_main.cc runs them over their corpus, as regression tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace flextrain::fuzz {

inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Takes the text up to the next `separator` off `rest`.
inline std::string_view take(std::string_view& rest, char separator = '\n') {
  const size_t end = rest.find(separator);
  const std::string_view part = rest.substr(0, end);
  rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  return part;
}

#define FUZZ_REQUIRE(condition)                                                           \
  do {                                                                                    \
    if (!(condition)) {                                                                   \
      std::fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                       \
    }                                                                                     \
  } while (false)

}  // namespace flextrain::fuzz
