// SPDX-License-Identifier: GPL-2.0-or-later
// The part of Engine that watches the tide of idle GPUs and says what it lets expect.
#include <algorithm>
#include <tuple>

#include "slurm_plugin/controller/engine.h"

namespace flextrain::slurm_plugin {
namespace {

constexpr int64_t kIdleSampleSeconds = 300;

}  // namespace

int64_t Engine::arrival_history() const {
  return static_cast<int64_t>(policy::forecast_history_seconds(config_.policy));
}

policy::Forecast Engine::forecast(const policy::Snapshot& snapshot) {
  if (!forecaster_) {
    forecaster_.emplace(config_.policy, static_cast<double>(observed_since_),
                        static_cast<double>(snapshot.local_offset_seconds));
    for (const auto& [key, arrival] : arrivals_) forecaster_->add(arrival);
    const auto stored =
        config_.policy.forecast == policy::ForecastKind::kIdle
            ? store_.queries().idle_since(snapshot.now - static_cast<int64_t>(policy::kIdleHistory))
            : Result<std::vector<store::IdleRow>>(std::vector<store::IdleRow>());
    note_error(stored.status(), "reading idle samples");
    for (const store::IdleRow& row : stored.value_or({})) {
      forecaster_->add_idle(static_cast<double>(row.time), row.idle + row.expanded);
    }
  }
  int unclaimed = snapshot.idle_gpus;
  for (const policy::ElasticJobView& job : snapshot.elastic) {
    for (const policy::CompanionView& companion : job.companions) unclaimed += companion.gpus;
  }
  forecaster_->add_idle(static_cast<double>(snapshot.now), unclaimed);
  return forecaster_->forecast(static_cast<double>(snapshot.now));
}

std::map<std::string, int> Engine::expanded_by_node() const {
  std::map<std::string, int> expanded;
  for (const auto& job : jobs_) {
    for (const auto& [id, companion] : job->companions) {
      if (companion.started) expanded[companion.row.node] += companion.row.gpus;
    }
  }
  return expanded;
}

Json Engine::idle_rows(const ClusterView& view) const {
  Json rows = Json::array();
  const std::map<std::string, int> expanded = expanded_by_node();
  const InFlight moving = in_flight(jobs_);
  for (const NodeRecord& node : view.nodes) {
    if (node.gpus == 0) continue;
    const std::string why = why_not_usable(view, node, config_);
    const auto claim = moving.taken.find(node.name);
    const int claimed = claim == moving.taken.end() ? 0 : claim->second.gpus;
    const auto held = expanded.find(node.name);
    rows.push_back(
        {{"node", node.name},
         {"gpus", node.gpus},
         {"allocated", node.gpus_allocated},
         {"expanded", held == expanded.end() ? 0 : held->second},
         {"idle",
          node.usable && why.empty() ? std::max(0, node.gpus - node.gpus_allocated - claimed) : 0},
         {"state", node.state},
         {"why", why}});
  }
  return rows;
}

// Every few minutes, per partition and GPU type, and the whole cluster as partition "".
void Engine::record_idle(const ClusterView& view) {
  // A clock that was set back must not end it.
  if (view.now >= idle_stored_ && view.now - idle_stored_ < kIdleSampleSeconds) return;
  idle_stored_ = view.now;
  const std::map<std::string, int> expanded = expanded_by_node();
  std::map<std::pair<std::string, std::string>, store::IdleRow> rows;
  for (const NodeRecord& node : view.nodes) {
    if (node.gpus == 0) continue;
    std::vector<std::pair<std::string, std::string>> keys = {{"", ""}};
    for (const std::string& partition : node.partitions)
      keys.emplace_back(partition, node.gres_type);
    for (const auto& key : keys) {
      store::IdleRow& row = rows[key];
      row.total += node.gpus;
      row.idle += node.usable ? std::max(0, node.gpus - node.gpus_allocated) : 0;
      if (const auto held = expanded.find(node.name); held != expanded.end()) {
        row.expanded += held->second;
      }
    }
  }
  std::vector<store::IdleRow> list;
  for (auto& [key, row] : rows) {
    row.cluster = cluster_name();
    row.time = view.now;
    std::tie(row.partition, row.gres_type) = key;
    list.push_back(std::move(row));
  }
  note_error(store_.record_idle(list), "storing idle samples");
}

}  // namespace flextrain::slurm_plugin
