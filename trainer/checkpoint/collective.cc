// SPDX-License-Identifier: MIT
#include "trainer/checkpoint/collective.h"

#include <vector>

namespace flextrain::trainer {
namespace {

// One byte of status code, then the message or the value.
std::string encode(const Status& status, std::string_view value) {
  std::string bytes(1, static_cast<char>(status.code()));
  bytes += status.ok() ? value : std::string_view(status.message());
  return bytes;
}

Result<std::string> decode(const std::string& bytes) {
  if (bytes.empty()) return internal_error("an empty message from another rank");
  const auto code = static_cast<StatusCode>(bytes[0]);
  std::string rest = bytes.substr(1);
  if (code == StatusCode::kOk) return rest;
  return Status(code, std::move(rest));
}

}  // namespace

Status agree(Communicator& comm, const Status& mine) {
  if (comm.size() == 1) return mine;
  // The common case costs one small reduction; messages travel only when there are any.
  int64_t failed[1] = {mine.ok() ? 0 : 1};
  RETURN_IF_ERROR(comm.all_reduce(std::span<int64_t>(failed), ReduceOp::kMax));
  if (failed[0] == 0) return {};
  ASSIGN_OR_RETURN(const std::vector<std::string> all, comm.gather_bytes(encode(mine, ""), 0));
  Status first = internal_error("a rank failed without a message");
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const Result<std::string> one = decode(all[rank]);
    if (one.ok()) continue;
    first = one.status().with_context(fmt::format("rank {}", rank));
    break;
  }
  const Result<std::string> shared = share(comm, 0, first);
  return shared.ok() ? first : shared.status();
}

Result<std::string> share(Communicator& comm, int root, const Result<std::string>& mine) {
  if (comm.size() == 1) return mine;
  std::string bytes;
  if (comm.rank() == root) bytes = encode(mine.status(), mine.ok() ? *mine : std::string());
  RETURN_IF_ERROR(comm.broadcast_bytes(bytes, root));
  return decode(bytes);
}

}  // namespace flextrain::trainer
