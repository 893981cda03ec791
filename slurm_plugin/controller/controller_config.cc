// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm_plugin/controller/controller_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "base/config_keys.h"
#include "base/file.h"
#include "base/key_value_config.h"
#include "base/text.h"
#include "policy/settings.h"
#include "slurm_plugin/controller/node_list.h"

namespace flextrain::slurm_plugin {
namespace {

using KeySpec = ConfigKeySpec<ControllerConfig>;

template <typename Where>
KeySpec yes_no(std::string name, Where where) {
  return yes_no_key<ControllerConfig>(std::move(name), where);
}
template <typename Where>
KeySpec integer(std::string name, int64_t low, int64_t high, Where where) {
  return integer_key<ControllerConfig>(std::move(name), low, high, where);
}

// "absolute" values must be absolute paths, "name" values must not hold blanks or commas.
enum class TextKind { kAny, kName, kAbsolutePath, kOptionalAbsolutePath };
template <typename Where>
KeySpec text(std::string name, TextKind kind, Where where) {
  return {std::move(name),
          [=](ControllerConfig& config, const std::string& value) -> Status {
            const bool path =
                kind == TextKind::kAbsolutePath || kind == TextKind::kOptionalAbsolutePath;
            if (path && !(value.empty() && kind == TextKind::kOptionalAbsolutePath) &&
                (value.empty() || value.front() != '/')) {
              return invalid_argument("'{}' is not an absolute path", value);
            }
            if (kind == TextKind::kName && value.find_first_of(" \t,") != std::string::npos) {
              return invalid_argument("'{}' must be one name", value);
            }
            where(config) = value;
            return {};
          },
          [where](const ControllerConfig& config) {
            return std::string(where(const_cast<ControllerConfig&>(config)));
          }};
}

KeySpec partitions_key() {
  return {"Partitions",
          [](ControllerConfig& config, const std::string& value) -> Status {
            config.partitions.clear();
            for (const std::string& part : split(value, ',')) {
              const std::string_view name = trim(part);
              if (name.empty()) return invalid_argument("'{}' has an empty name", value);
              config.partitions.emplace_back(name);
            }
            return {};
          },
          [](const ControllerConfig& config) {
            return fmt::format("{}", fmt::join(config.partitions, ","));
          }};
}

KeySpec opt_out_nodes_key() {
  return {"OptOutNodes",
          [](ControllerConfig& config, const std::string& value) -> Status {
            config.opt_out_nodes_text = value;
            config.opt_out_nodes.clear();
            if (value.empty()) return {};
            ASSIGN_OR_RETURN(const auto nodes, expand_host_list(value));
            config.opt_out_nodes = {nodes.begin(), nodes.end()};
            return {};
          },
          [](const ControllerConfig& config) { return config.opt_out_nodes_text; }};
}

// Applied before every other key (parse_controller_config).
KeySpec policy_key() {
  return {"Policy",
          [](ControllerConfig& config, const std::string& value) -> Status {
            ASSIGN_OR_RETURN(config.policy, policy::parse_preset(value));
            config.policy_preset = to_lower(value);
            return {};
          },
          [](const ControllerConfig& config) { return config.policy_preset; }};
}

KeySpec of_policy(const ConfigKeySpec<policy::Parameters>& key) {
  return {key.name,
          [&key](ControllerConfig& config, const std::string& value) {
            return key.set(config.policy, value);
          },
          [&key](const ControllerConfig& config) { return key.get(config.policy); }};
}

constexpr std::string_view kLogLevels[] = {"debug", "info", "warning", "error"};
KeySpec log_level_key() {
  return {"LogLevel",
          [](ControllerConfig& config, const std::string& value) -> Status {
            for (int level = 0; level < 4; ++level) {
              if (to_lower(value) == kLogLevels[level]) {
                config.log_level = static_cast<LogLevel>(level);
                return {};
              }
            }
            return invalid_argument("'{}' is none of debug, info, warning, error", value);
          },
          [](const ControllerConfig& config) {
            return std::string(kLogLevels[static_cast<int>(config.log_level)]);
          }};
}

constexpr int64_t kDay = 86400;
// slurmctld's PERIODIC_TIMEOUT of 30 s counts twice: it warns when now + 30 s + the time asked for
// reaches the end, and looks every 30 s (seen: 38 s before the end where 20 s were asked for).
constexpr int64_t kSignalSlack = 60;

#define FIELD(path) \
  [](ControllerConfig & config) -> auto& { return config.path; }
const std::vector<KeySpec>& key_specs() {
  // Leaked on purpose: slurmctld may still run our threads while statics are destroyed.
  static const auto* specs = [] {
    auto* list = new std::vector<KeySpec>{
        yes_no("Enabled", FIELD(enabled)),
        partitions_key(),
        text("InnerScheduler", TextKind::kName, FIELD(inner_scheduler)),
        text("EndpointAddress", TextKind::kName, FIELD(endpoint_address)),
        integer("EndpointPort", 0, 65535, FIELD(endpoint_port)),
        integer("MetricsPort", 0, 65535, FIELD(metrics_port)),
        text("MetricsAddress", TextKind::kName, FIELD(metrics_address)),
        text("MungeSocket", TextKind::kOptionalAbsolutePath, FIELD(munge_socket)),
        text("DatabasePath", TextKind::kAbsolutePath, FIELD(database_path)),
        integer("TickSeconds", 1, 3600, FIELD(tick_seconds)),
        integer("TickLimitSeconds", 1, 3600, FIELD(tick_limit_seconds)),
        integer("WakeDelayMilliseconds", 0, 5000, FIELD(wake_delay_milliseconds)),
        integer("LeaseSeconds", 60, kDay, FIELD(lease_seconds)),
        integer("RenewSeconds", 30, kDay, FIELD(renew_seconds)),
        yes_no("CompanionPreemptable", FIELD(companion_preemptable)),
        text("CompanionPartition", TextKind::kName, FIELD(companion_partition)),
        text("CompanionQOS", TextKind::kName, FIELD(companion_qos)),
        integer("CompanionSignalSeconds", 0, 3600, FIELD(companion_signal_seconds)),
        text("CompanionOutput", TextKind::kAny, FIELD(companion_output)),
        yes_no("ShareBaseNodes", FIELD(share_base_nodes)),
        opt_out_nodes_key(),
        integer("CompanionStartTimeout", 5, kDay, FIELD(companion_start_timeout)),
        integer("GrowTimeout", 5, kDay, FIELD(grow_timeout)),
        integer("ShrinkTimeout", 5, kDay, FIELD(shrink_timeout)),
        integer("AgentTimeout", 30, kDay, FIELD(agent_timeout)),
        integer("MaxScalingFailures", 0, 1000, FIELD(max_scaling_failures)),
        policy_key(),
    };
    for (const auto& key : policy::settings()) list->push_back(of_policy(key));
    list->push_back(integer("RetentionDays", 1, 36500, FIELD(retention_days)));
    list->push_back(log_level_key());
    return list;
  }();
  return *specs;
}
#undef FIELD

int line_of(const std::vector<ConfigEntry>& entries, std::string_view key) {
  for (const ConfigEntry& entry : entries) {
    if (to_lower(entry.key) == to_lower(key)) return entry.line;
  }
  return 1;
}

// Rules over more than one key.
Status check_together(const ControllerConfig& config, const std::vector<ConfigEntry>& entries,
                      std::string_view file) {
  if (config.renew_seconds >= config.lease_seconds) {
    return invalid_argument(
        "{}:{}: RenewSeconds={} must be below LeaseSeconds={}: a lease is renewed before it ends",
        file, line_of(entries, "RenewSeconds"), config.renew_seconds, config.lease_seconds);
  }
  if (config.renew_seconds < 2 * config.tick_seconds) {
    return invalid_argument(
        "{}:{}: RenewSeconds={} must be at least twice TickSeconds={}: a lease would end between "
        "two looks",
        file, line_of(entries, "RenewSeconds"), config.renew_seconds, config.tick_seconds);
  }
  if (config.companion_signal_seconds > 0 &&
      config.renew_seconds < config.companion_signal_seconds + kSignalSlack) {
    return invalid_argument(
        "{}:{}: CompanionSignalSeconds={} must be at least {} s below RenewSeconds={}: slurmctld "
        "looks every 30 s and signals up to {} s early, before the renewal",
        file, line_of(entries, "CompanionSignalSeconds"), config.companion_signal_seconds,
        kSignalSlack, config.renew_seconds, kSignalSlack);
  }
  if (config.companion_preemptable && config.companion_partition.empty() &&
      config.companion_qos.empty()) {
    return invalid_argument(
        "{}:{}: CompanionPreemptable=yes needs CompanionPartition or CompanionQOS: Slurm preempts "
        "by partition or QOS, and the base's own is not to be preempted",
        file, line_of(entries, "CompanionPreemptable"));
  }
  return {};
}

}  // namespace

std::vector<ConfigKey> describe_config(const ControllerConfig& config) {
  const ControllerConfig defaults;
  std::vector<ConfigKey> keys;
  for (const KeySpec& spec : key_specs()) {
    keys.push_back({spec.name, spec.get(defaults), spec.get(config)});
  }
  return keys;
}

Result<ControllerConfig> parse_controller_config(std::string_view text,
                                                 std::string_view file_name) {
  ASSIGN_OR_RETURN(const auto entries, parse_key_value_config(text, file_name));
  ControllerConfig config;
  const auto is_policy = [](const ConfigEntry& entry) { return to_lower(entry.key) == "policy"; };
  std::vector<ConfigEntry> ordered = entries;  // the preset first: it sets what others change
  std::stable_partition(ordered.begin(), ordered.end(), is_policy);
  for (const ConfigEntry& entry : ordered) {
    const KeySpec* found = nullptr;
    for (const KeySpec& spec : key_specs()) {
      if (to_lower(spec.name) == to_lower(entry.key)) found = &spec;
    }
    if (found == nullptr) {
      return invalid_argument("{}:{}: there is no key '{}'; docs/configuration.md lists them all",
                              file_name, entry.line, entry.key);
    }
    if (Status status = found->set(config, entry.value); !status.ok()) {
      return invalid_argument("{}:{}: {}={}: {}", file_name, entry.line, found->name, entry.value,
                              status.message());
    }
  }
  RETURN_IF_ERROR(check_together(config, entries, file_name));
  return config;
}

Result<ControllerConfig> load_controller_config(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, read_file(path, size_t{1} << 20));
  return parse_controller_config(text, path);
}

bool elastic_partition(const ControllerConfig& config, std::string_view partition) {
  if (config.partitions.empty()) return true;
  for (const std::string& name : config.partitions) {
    if (name == partition) return true;
  }
  return false;
}

}  // namespace flextrain::slurm_plugin
