// SPDX-License-Identifier: MIT
// The nodes of a Snapshot by number, so that a tick costs additions instead of comparisons of
// names. Numbers follow the order of the names. Pure. Private to policy/
// and the simulator.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "policy/policy.h"

namespace flextrain::policy {

struct IndexedOffer {
  int node = 0, gpus = 0;
};

class NodeIndex {
 public:
  explicit NodeIndex(const Snapshot& snapshot, const Parameters& parameters);

  size_t size() const { return names_.size(); }
  std::string name(int node) const { return std::string(names_[static_cast<size_t>(node)]); }
  int number(std::string_view name) const { return numbers_.at(name); }
  // Of lists that are in the snapshot; in their order.
  const std::vector<IndexedOffer>& offers(const SharedList<NodeOffer>& list) const;
  const std::vector<int>& nodes(const SharedList<std::string>& list) const;

 private:
  bool find_near(std::string_view name, size_t& near) const;

  std::vector<std::string_view> names_;  // sorted; they live in the snapshot
  std::unordered_map<std::string_view, int> numbers_;
  std::unordered_map<const void*, std::vector<IndexedOffer>> offers_;
  std::unordered_map<const void*, std::vector<int>> nodes_;
};

// How many of the snapshot's waiting jobs are looked at.
size_t waiting_depth(const Snapshot& snapshot, const Parameters& parameters);

}  // namespace flextrain::policy
