// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm_plugin/controller/table_view.h"

#include <cmath>

#include "base/json_number.h"

namespace flextrain::slurm_plugin {
namespace {

constexpr size_t kMaxEntries = 10000;
constexpr int kMaxGpus = 1000000;

}  // namespace

double TableView::tokens_per_second(int gpus) const {
  for (const policy::TableEntry& entry : entries) {
    if (entry.gpus == gpus) return entry.tokens_per_second;
  }
  return 0;
}

std::optional<policy::TableEntry> TableView::best_within(int gpus) const {
  std::optional<policy::TableEntry> best;
  for (const policy::TableEntry& entry : entries) {
    if (entry.gpus <= gpus && (!best || entry.tokens_per_second > best->tokens_per_second)) {
      best = entry;
    }
  }
  return best;
}

Json TableView::plan_for(int gpus) const {
  const auto found = plans.find(gpus);
  return found == plans.end() ? Json() : found->second;
}

Result<TableView> read_scale_table(const Json& table) {
  return decode_json("scale table", [&] {
    if (!table.is_object() || !table.contains("entries") || !table.at("entries").is_array()) {
      throw std::invalid_argument("'entries' must be a list");
    }
    if (table.at("entries").size() > kMaxEntries) throw std::invalid_argument("too many entries");
    TableView view;
    std::map<int, policy::TableEntry> kept;
    std::map<int, double> fastest;
    for (const Json& entry : table.at("entries")) {
      const int gpus = whole_number<int>(entry.at("shape").at("gpus"));
      const double speed = entry.at("tokens_per_second").get<double>();
      if (gpus < 1 || gpus > kMaxGpus) throw std::invalid_argument("'gpus' out of bounds");
      if (!std::isfinite(speed) || speed < 0) {
        throw std::invalid_argument("'tokens_per_second' is no throughput");
      }
      if (!entry.value("fits", true)) continue;  // no Plan to run
      if (const auto seen = fastest.find(gpus); seen == fastest.end() || speed > seen->second) {
        fastest[gpus] = speed;
        view.plans[gpus] = entry.at("plan");
      }
      if (!entry.value("kept", true) || speed <= 0) continue;
      policy::TableEntry& best = kept[gpus];
      if (speed > best.tokens_per_second) best = {gpus, speed};
    }
    for (const auto& [gpus, entry] : kept) view.entries.push_back(entry);
    return view;
  });
}

}  // namespace flextrain::slurm_plugin
