// SPDX-License-Identifier: MIT
#include "policy/snapshot_json.h"

#include <map>

#include "base/json_number.h"

namespace flextrain::policy {
namespace {

template <typename Item>
Json item_json(const Item& item);
template <>
Json item_json(const NodeOffer& offer) {
  return Json::array({offer.node, offer.gpus});
}
template <>
Json item_json(const std::string& name) {
  return name;
}

template <typename Item>
Item item_from(const Json& json);
template <>
NodeOffer item_from(const Json& json) {
  return {json.at(0).get<std::string>(), whole_number<int>(json.at(1))};
}
template <>
std::string item_from(const Json& json) {
  return json.get<std::string>();
}

// Shared lists by number; -1 = the empty one.
template <typename Item>
class ListWriter {
 public:
  int number(const SharedList<Item>& list) {
    if (list.empty()) return -1;
    const auto [at, inserted] = numbers_.emplace(list.identity(), static_cast<int>(json_.size()));
    if (inserted) {
      Json items = Json::array();
      for (const Item& item : list) items.push_back(item_json(item));
      json_.push_back(std::move(items));
    }
    return at->second;
  }
  Json take() { return std::move(json_); }

 private:
  std::map<const void*, int> numbers_;
  Json json_ = Json::array();
};

template <typename Item>
class ListReader {
 public:
  explicit ListReader(const Json& json) {
    for (const Json& items : json) {
      std::vector<Item> list;
      for (const Json& item : items) list.push_back(item_from<Item>(item));
      lists_.emplace_back(std::move(list));
    }
  }
  SharedList<Item> list(const Json& number) const {
    const auto at = whole_number<int>(number);
    return at < 0 ? SharedList<Item>() : lists_.at(static_cast<size_t>(at));
  }

 private:
  std::vector<SharedList<Item>> lists_;
};

// The fields of the plain structs, once for both directions. `field(name, reference)`.
template <typename Job, typename Field>
void job_fields(Job& job, Field&& field) {
  field("job_id", job.job_id);
  field("user", job.user);
  field("account", job.account);
  field("start_time", job.start_time);
  field("steady", job.steady);
  field("not_steady_reason", job.not_steady_reason);
  field("base_gpus", job.base_gpus);
  field("held_gpus", job.held_gpus);
  field("max_gpus", job.max_gpus);
  field("remaining_seconds", job.remaining_seconds);
  field("remaining_source", job.remaining_source);
  field("saving", job.saving);
  field("pending_gpus", job.pending_gpus);
  field("scalings_last_hour", job.scalings_last_hour);
  field("grow_overhead_seconds", job.grow_overhead_seconds);
  field("shrink_overhead_seconds", job.shrink_overhead_seconds);
  field("last_switch_time", job.last_switch_time);
  field("last_failure_time", job.last_failure_time);
  field("failures", job.failures);
  field("hold_rule", job.hold_rule);
  field("hold_reason", job.hold_reason);
  field("own_nodes", job.own_nodes);
}

template <typename Job, typename Field>
void waiting_fields(Job& job, Field&& field) {
  field("job_id", job.job_id);
  field("submit_time", job.submit_time);
  field("nodes", job.nodes);
  field("gpus", job.gpus);
  field("gpus_per_node", job.gpus_per_node);
}

template <typename View, typename Field>
void companion_fields(View& view, Field&& field) {
  field("job_id", view.job_id);
  field("node", view.node);
  field("gpus", view.gpus);
  field("leaving", view.leaving);
}

template <typename Any, typename Field>
void snapshot_fields(Any& snapshot, Field&& field) {
  field("now", snapshot.now);
  field("local_offset_seconds", snapshot.local_offset_seconds);
  field("more_waiting", snapshot.more_waiting);
  field("other_waiting_gpu_jobs", snapshot.other_waiting_gpu_jobs);
  field("idle_gpus", snapshot.idle_gpus);
  field("total_gpus", snapshot.total_gpus);
}

template <typename Any, typename Field>
void forecast_fields(Any& forecast, Field&& field) {
  field("per_second", forecast.per_second);
  field("arrivals", forecast.arrivals);
  field("seconds", forecast.seconds);
}

template <typename Any, typename Field>
void parameter_fields(Any& parameters, Field&& field) {
  field("gate", parameters.gate);
  field("gate_probability", parameters.gate_probability);
  field("forecast", parameters.forecast);
  field("victims", parameters.victims);
  field("arrival_window_seconds", parameters.arrival_window_seconds);
  field("arrival_min_gpus", parameters.arrival_min_gpus);
  field("max_growth", parameters.max_growth);
  field("require_empty_queue", parameters.require_empty_queue);
  field("remaining_time_guard", parameters.remaining_time_guard);
  field("default_overhead_seconds", parameters.default_overhead_seconds);
  field("cooldown_seconds", parameters.cooldown_seconds);
  field("retry_after_failure_seconds", parameters.retry_after_failure_seconds);
  field("spare_ending_seconds", parameters.spare_ending_seconds);
  field("user_max_expanded", parameters.user_max_expanded);
  field("account_max_expanded", parameters.account_max_expanded);
  field("max_scalings_per_hour", parameters.max_scalings_per_hour);
  field("idle_reserve", parameters.idle_reserve);
  field("quiet_hours", parameters.quiet_hours);
  field("queue_depth", parameters.queue_depth);
}

struct Write {
  Json& json;
  template <typename Value>
  void operator()(const char* name, const Value& value) const {
    json[name] = value;
  }
  void operator()(const char* name, const std::optional<double>& value) const {
    json[name] = value ? Json(*value) : Json();
  }
  void operator()(const char* name, Gate value) const { json[name] = gate_name(value); }
  void operator()(const char* name, ForecastKind value) const { json[name] = forecast_name(value); }
  void operator()(const char* name, VictimRule value) const {
    json[name] = victim_rule_name(value);
  }
  void operator()(const char* name, const QuietHours& value) const { json[name] = value.text(); }
};

template <typename T>
T or_throw(Result<T> result) {  // within decode_json()
  if (!result.ok()) throw std::invalid_argument(result.status().message());
  return std::move(*result);
}

struct Read {
  const Json& json;
  template <typename Value>
  void operator()(const char* name, Value& value) const {
    if constexpr (std::is_integral_v<Value> && !std::is_same_v<Value, bool>)
      value = whole_number<Value>(json.at(name));
    else
      value = json.at(name).get<Value>();
  }
  void operator()(const char* name, std::optional<double>& value) const {
    value.reset();
    if (!json.at(name).is_null()) value = json.at(name).get<double>();
  }
  void operator()(const char* name, Gate& value) const {
    value = or_throw(parse_gate(json.at(name).get<std::string>()));
  }
  void operator()(const char* name, ForecastKind& value) const {
    value = or_throw(parse_forecast(json.at(name).get<std::string>()));
  }
  void operator()(const char* name, VictimRule& value) const {
    value = or_throw(parse_victim_rule(json.at(name).get<std::string>()));
  }
  void operator()(const char* name, QuietHours& value) const {
    value = or_throw(QuietHours::parse(json.at(name).get<std::string>()));
  }
};

}  // namespace

Json snapshot_to_json(const Snapshot& snapshot, const Parameters& parameters) {
  ListWriter<NodeOffer> offers;
  ListWriter<std::string> nodes;
  Json elastic = Json::array(), waiting = Json::array();
  for (const ElasticJobView& job : snapshot.elastic) {
    Json row = Json::object();
    job_fields(job, Write{row});
    Json& table = row["table"] = Json::array();
    for (const TableEntry& entry : job.table)
      table.push_back({{"gpus", entry.gpus}, {"tokens_per_second", entry.tokens_per_second}});
    Json& companions = row["companions"] = Json::array();
    for (const CompanionView& companion : job.companions) {
      Json view = Json::object();
      companion_fields(companion, Write{view});
      companions.push_back(std::move(view));
    }
    row["offers"] = offers.number(job.offers);
    elastic.push_back(std::move(row));
  }
  for (const WaitingJob& job : snapshot.waiting) {
    Json row = Json::object();
    waiting_fields(job, Write{row});
    row["offers"] = offers.number(job.offers);
    row["usable_nodes"] = nodes.number(job.usable_nodes);
    waiting.push_back(std::move(row));
  }
  Json json = Json::object();
  snapshot_fields(snapshot, Write{json});
  json["elastic"] = std::move(elastic);
  json["waiting"] = std::move(waiting);
  json["offer_lists"] = offers.take();
  json["node_lists"] = nodes.take();
  Json& forecast = json["forecast"] = Json::object();
  forecast_fields(snapshot.forecast, Write{forecast});
  Json& decided_with = json["parameters"] = Json::object();
  parameter_fields(parameters, Write{decided_with});
  return json;
}

Result<StoredSnapshot> snapshot_from_json(const Json& json) {
  return decode_json("snapshot", [&] {
    StoredSnapshot stored;
    Snapshot& snapshot = stored.snapshot;
    const ListReader<NodeOffer> offers(json.at("offer_lists"));
    const ListReader<std::string> nodes(json.at("node_lists"));
    snapshot_fields(snapshot, Read{json});
    for (const Json& row : json.at("elastic")) {
      ElasticJobView& job = snapshot.elastic.emplace_back();
      job_fields(job, Read{row});
      for (const Json& entry : row.at("table"))
        job.table.push_back(
            {whole_number<int>(entry.at("gpus")), entry.at("tokens_per_second").get<double>()});
      for (const Json& view : row.at("companions"))
        companion_fields(job.companions.emplace_back(), Read{view});
      job.offers = offers.list(row.at("offers"));
    }
    for (const Json& row : json.at("waiting")) {
      WaitingJob& job = snapshot.waiting.emplace_back();
      waiting_fields(job, Read{row});
      job.offers = offers.list(row.at("offers"));
      job.usable_nodes = nodes.list(row.at("usable_nodes"));
    }
    forecast_fields(snapshot.forecast, Read{json.at("forecast")});
    parameter_fields(stored.parameters, Read{json.at("parameters")});
    return stored;
  });
}

}  // namespace flextrain::policy
