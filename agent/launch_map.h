// SPDX-License-Identifier: MIT
// Which rank runs where: the Placement of a launch (docs/agent.md). Pure.
//
// Ranks are dealt out host by host, the agent's own host first; on one host, the job that appears
// first (the base, where it is there) comes first and owns the host's launcher daemon, and ranks
// of other jobs on that host step over into their own job.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "protocol/messages.h"

namespace flextrain::agent {

struct Segment {  // consecutive ranks of one job on one host
  uint32_t job_id = 0;
  std::string host;
  int ranks = 0;
  bool operator==(const Segment&) const = default;
};

class LaunchMap {
 public:
  // Allocations without GPUs are left out.
  static LaunchMap build(const std::vector<protocol::Allocation>& allocations,
                         std::string_view own_host);
  // "job:host:ranks,…", as carried in FLEXTRAIN_LAUNCH_MAP.
  static Result<LaunchMap> parse(std::string_view text);
  std::string to_text() const;

  const std::vector<Segment>& segments() const { return segments_; }
  int num_ranks() const;
  std::string mpirun_hosts() const;  // "n1:4,n2:2"
  std::vector<std::string> hosts() const;
  int ranks_on(std::string_view host) const;
  // The job that runs the host's daemon; kNotFound for a host outside the map.
  Result<uint32_t> owner(std::string_view host) const;

  struct Position {
    Segment segment;
    int index = 0;       // of the rank within its segment = its device
    uint32_t owner = 0;  // of the host
  };
  Result<Position> find(int rank) const;

 private:
  std::vector<Segment> segments_;
};

}  // namespace flextrain::agent
