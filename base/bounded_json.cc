// SPDX-License-Identifier: MIT
#include "base/bounded_json.h"

namespace flextrain {
namespace {

// What nlohmann's values cost on a 64-bit machine, with the allocator's own: a list or object with
// its first element, a member (tree node and key), a further element (lists double as they grow).
constexpr size_t kContainerBytes = 80, kMemberBytes = 96, kElementBytes = 32;

// Over the text alone, before anything is built. Text that is no JSON gets some answer too: the
// parser refuses it later.
Status check_bounds(std::string_view text, std::string_view what, const JsonBounds& bounds) {
  size_t depth = 0, memory = 0;
  bool in_string = false;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (in_string) {
      if (c == '\\') {
        ++at;
      } else if (c == '"') {
        in_string = false;
      }
      continue;
    }
    switch (c) {
      case '"':
        in_string = true;
        break;
      case '[':
      case '{':
        memory += kContainerBytes;
        if (++depth > bounds.depth) {
          return data_loss("{} is nested deeper than {} levels", what, bounds.depth);
        }
        break;
      case ']':
      case '}':
        if (depth > 0) --depth;
        break;
      case ':':
        memory += kMemberBytes;
        break;
      case ',':
        memory += kElementBytes;
        break;
      default:
        break;
    }
  }
  if (memory > bounds.memory) {
    return resource_exhausted("{} has too many parts: about {} MiB of memory, more than {} MiB",
                              what, memory >> 20, bounds.memory >> 20);
  }
  return {};
}

}  // namespace

Result<Json> parse_bounded_json(std::string_view text, std::string_view what,
                                const JsonBounds& bounds) {
  RETURN_IF_ERROR(check_bounds(text, what, bounds));
  return parse_json(text, what);
}

}  // namespace flextrain
