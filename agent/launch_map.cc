// SPDX-License-Identifier: MIT
#include "agent/launch_map.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace flextrain::agent {

LaunchMap LaunchMap::build(const std::vector<protocol::Allocation>& allocations,
                           std::string_view own_host) {
  std::vector<std::string> hosts;
  for (const auto& allocation : allocations) {
    if (std::find(hosts.begin(), hosts.end(), allocation.host) == hosts.end()) {
      hosts.push_back(allocation.host);
    }
  }
  const auto own = std::find(hosts.begin(), hosts.end(), own_host);
  if (own != hosts.end()) std::rotate(hosts.begin(), own, own + 1);
  LaunchMap map;
  for (const std::string& host : hosts) {
    for (const auto& allocation : allocations) {
      if (allocation.host == host && allocation.gpus > 0) {
        map.segments_.push_back({allocation.job_id, host, allocation.gpus});
      }
    }
  }
  return map;
}

Result<LaunchMap> LaunchMap::parse(std::string_view text) {
  LaunchMap map;
  for (const std::string& part : split(text, ',')) {
    const auto fields = split(part, ':');
    if (fields.size() != 3) return invalid_argument("'{}' is not job:host:ranks", part);
    ASSIGN_OR_RETURN(const int64_t job, parse_int(fields[0]));
    ASSIGN_OR_RETURN(const int64_t ranks, parse_int(fields[2]));
    if (job < 0 || job > UINT32_MAX || ranks < 1 || ranks > (1 << 20) || fields[1].empty()) {
      return invalid_argument("'{}' is not job:host:ranks", part);
    }
    map.segments_.push_back({static_cast<uint32_t>(job), fields[1], static_cast<int>(ranks)});
  }
  if (map.segments_.empty()) return invalid_argument("the launch map is empty");
  return map;
}

std::string LaunchMap::to_text() const {
  std::string text;
  for (const Segment& segment : segments_) {
    text += fmt::format("{}{}:{}:{}", text.empty() ? "" : ",", segment.job_id, segment.host,
                        segment.ranks);
  }
  return text;
}

int LaunchMap::num_ranks() const {
  int ranks = 0;
  for (const Segment& segment : segments_) ranks += segment.ranks;
  return ranks;
}

std::vector<std::string> LaunchMap::hosts() const {
  std::vector<std::string> hosts;
  for (const Segment& segment : segments_) {
    if (hosts.empty() || hosts.back() != segment.host) hosts.push_back(segment.host);
  }
  return hosts;
}

int LaunchMap::ranks_on(std::string_view host) const {
  int ranks = 0;
  for (const Segment& segment : segments_) {
    if (segment.host == host) ranks += segment.ranks;
  }
  return ranks;
}

std::string LaunchMap::mpirun_hosts() const {
  std::string text;
  for (const std::string& host : hosts()) {
    text += fmt::format("{}{}:{}", text.empty() ? "" : ",", host, ranks_on(host));
  }
  return text;
}

Result<uint32_t> LaunchMap::owner(std::string_view host) const {
  for (const Segment& segment : segments_) {
    if (segment.host == host) return segment.job_id;
  }
  return not_found("host '{}' is not part of this launch ({})", host, to_text());
}

Result<LaunchMap::Position> LaunchMap::find(int rank) const {
  int first = 0;
  for (const Segment& segment : segments_) {
    if (rank >= first && rank < first + segment.ranks) {
      ASSIGN_OR_RETURN(const uint32_t host_owner, owner(segment.host));
      return Position{segment, rank - first, host_owner};
    }
    first += segment.ranks;
  }
  return not_found("rank {} is not part of this launch of {} ranks", rank, num_ranks());
}

}  // namespace flextrain::agent
