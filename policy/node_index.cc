// SPDX-License-Identifier: MIT
#include "policy/node_index.h"

#include <algorithm>

namespace flextrain::policy {

size_t waiting_depth(const Snapshot& snapshot, const Parameters& parameters) {
  return std::min(snapshot.waiting.size(),
                  static_cast<size_t>(std::max(parameters.queue_depth, 1)));
}

NodeIndex::NodeIndex(const Snapshot& snapshot, const Parameters& parameters) {
  std::vector<const SharedList<NodeOffer>*> offers;
  std::vector<const SharedList<std::string>*> nodes;
  const auto note = [](auto& lists, auto& made, const auto& list) {
    if (list.identity() != nullptr && made.try_emplace(list.identity()).second)
      lists.push_back(&list);
  };
  for (const ElasticJobView& job : snapshot.elastic) note(offers, offers_, job.offers);
  for (size_t i = 0; i < waiting_depth(snapshot, parameters); ++i) {
    note(offers, offers_, snapshot.waiting[i].offers);
    note(nodes, nodes_, snapshot.waiting[i].usable_nodes);
  }
  // Numbers in the order of appearance first; once all names are known, in theirs.
  size_t near = 0;
  const auto add = [&](std::string_view name) {
    if (!find_near(name, near)) {
      const auto [at, inserted] = numbers_.try_emplace(name, static_cast<int>(names_.size()));
      if (inserted) names_.push_back(name);
      near = static_cast<size_t>(at->second) + 1;
    }
    return static_cast<int>(near) - 1;
  };
  for (const auto* list : offers) {
    auto& made = offers_[list->identity()];
    made.reserve(list->size());
    for (const NodeOffer& offer : *list) made.push_back({add(offer.node), offer.gpus});
  }
  for (const auto* list : nodes) {
    auto& made = nodes_[list->identity()];
    made.reserve(list->size());
    for (const std::string& node : *list) made.push_back(add(node));
  }
  for (const ElasticJobView& job : snapshot.elastic) {
    for (const CompanionView& companion : job.companions) add(companion.node);
    for (const std::string& node : job.own_nodes) add(node);
  }
  std::sort(names_.begin(), names_.end());
  std::vector<int> sorted(names_.size());
  for (size_t i = 0; i < names_.size(); ++i) {
    int& number = numbers_[names_[i]];
    sorted[static_cast<size_t>(number)] = static_cast<int>(i);
    number = static_cast<int>(i);
  }
  for (auto& [identity, made] : offers_)
    for (IndexedOffer& offer : made) offer.node = sorted[static_cast<size_t>(offer.node)];
  for (auto& [identity, made] : nodes_)
    for (int& node : made) node = sorted[static_cast<size_t>(node)];
}

// Lists name their nodes in about the same order: a few comparisons from the last one on are
// cheaper than a search. `near` becomes the place behind the one found.
bool NodeIndex::find_near(std::string_view name, size_t& near) const {
  const size_t end = std::min(near + 4, names_.size());
  for (size_t at = near; at < end; ++at)
    if (names_[at] == name) {
      near = at + 1;
      return true;
    }
  return false;
}

const std::vector<IndexedOffer>& NodeIndex::offers(const SharedList<NodeOffer>& list) const {
  static const std::vector<IndexedOffer> kNone;
  return list.identity() == nullptr ? kNone : offers_.at(list.identity());
}

const std::vector<int>& NodeIndex::nodes(const SharedList<std::string>& list) const {
  static const std::vector<int> kNone;
  return list.identity() == nullptr ? kNone : nodes_.at(list.identity());
}

}  // namespace flextrain::policy
