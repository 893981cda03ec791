// SPDX-License-Identifier: MIT
#include "protocol/discovery.h"

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>

#include "base/file.h"
#include "base/key_value_config.h"
#include "base/path.h"
#include "base/text.h"
#include "protocol/messages.h"

namespace flextrain::protocol {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Result<uid_t> uid_of(std::string_view user) {  // "slurm", "slurm(64030)", "64030"
  user = trim(user);
  if (const size_t open = user.find('('); open != std::string_view::npos && user.ends_with(')')) {
    user = user.substr(open + 1, user.size() - open - 2);
  }
  if (Result<int64_t> number = parse_int(user); number.ok()) return static_cast<uid_t>(*number);
  passwd entry{};
  passwd* found = nullptr;
  std::array<char, 16384> buffer{};
  if (getpwnam_r(std::string(user).c_str(), &entry, buffer.data(), buffer.size(), &found) != 0 ||
      found == nullptr) {
    return not_found("SlurmUser '{}' is not a user of this host", user);
  }
  return found->pw_uid;
}

// Text of `scontrol show config`; "" when there is none. timeout(1) bounds a dead slurmctld.
std::string scontrol_config() {
  FILE* pipe = ::popen("timeout 10 scontrol show config 2>/dev/null", "re");
  if (pipe == nullptr) return "";
  std::string text;
  std::array<char, 65536> buffer{};
  while (const size_t got = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
    text.append(buffer.data(), got);
    if (text.size() > (size_t{8} << 20)) break;
  }
  return ::pclose(pipe) == 0 ? text : "";
}

bool includes_files(std::string_view slurm_conf) {  // slurm.conf(5): "include <file>"
  for (const std::string& line : split(slurm_conf, '\n')) {
    if (to_lower(trim(line)).starts_with("include ")) return true;
  }
  return false;
}

Result<int> port_beside(const std::string& slurm_conf) {
  const std::string path = parent_folder(slurm_conf) + "/flextrain.conf";
  const Result<std::string> text = read_file(path, size_t{4} << 20);
  if (!text.ok()) return kDefaultPort;  // absent or only for root: the default
  return endpoint_port(*text, path);
}

}  // namespace

Result<std::vector<HostPort>> parse_host_list(std::string_view text, int default_port) {
  std::vector<HostPort> hosts;
  for (const std::string& part : split(text, ',')) {
    std::string_view host = trim(part), port;
    if (host.starts_with('[')) {
      const size_t close = host.find(']');
      if (close == std::string_view::npos) {
        return invalid_argument("'{}' is not host or host:port: a ']' is missing", part);
      }
      port = host.substr(close + 1);
      host = host.substr(1, close - 1);
      if (!port.empty() && !port.starts_with(':')) {
        return invalid_argument("'{}' is not host or host:port", part);
      }
      if (!port.empty()) port.remove_prefix(1);
    } else if (const size_t colon = host.find(':'); colon != std::string_view::npos) {
      port = host.substr(colon + 1);
      host = host.substr(0, colon);
      if (port.empty()) return invalid_argument("'{}' has no port after its colon", part);
    }
    if (host.empty() || host.find_first_of(" /?#@") != std::string_view::npos) {
      return invalid_argument("'{}' is not host or host:port", part);
    }
    int number = default_port;
    if (!port.empty()) {
      const Result<int64_t> parsed = parse_int(port);
      if (!parsed.ok() || *parsed < 1 || *parsed > 65535) {
        return invalid_argument("'{}' has no port between 1 and 65535", part);
      }
      number = static_cast<int>(*parsed);
    }
    hosts.push_back({std::string(host), number});
  }
  if (hosts.empty()) return invalid_argument("the list of controller hosts is empty");
  return hosts;
}

Result<ControllerLocation> parse_slurm_config(std::string_view text, int port) {
  ControllerLocation location;
  std::string user = "root";  // slurm.conf(5): the default of SlurmUser
  for (const std::string& raw : split(text, '\n')) {
    const std::string_view line = trim(std::string_view(raw).substr(0, raw.find('#')));
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos) continue;
    std::string key = to_lower(trim(line.substr(0, equals)));
    const std::string_view value = trim(line.substr(equals + 1));
    key = key.substr(0, key.find('['));  // "SlurmctldHost[0]"
    if (key == "slurmctldhost" || key == "controlmachine") {
      // "name(address)": the address is what its clients are meant to use.
      std::string_view host = value;
      if (const size_t open = host.find('('); open != std::string_view::npos) {
        const size_t close = host.find(')', open);
        if (close == std::string_view::npos) continue;
        host = trim(host.substr(open + 1, close - open - 1));
      }
      if (!host.empty()) location.hosts.push_back({std::string(host), port});
    } else if (key == "slurmuser") {
      user = std::string(value);
    } else if (key == "clustername") {
      location.cluster = to_lower(value);  // Slurm lowers it too
    }
  }
  if (location.hosts.empty()) return not_found("no SlurmctldHost is set");
  ASSIGN_OR_RETURN(location.slurm_uid, uid_of(user));
  return location;
}

Result<int> endpoint_port(std::string_view flextrain_conf, std::string_view file_name) {
  ASSIGN_OR_RETURN(const std::vector<ConfigEntry> entries,
                   parse_key_value_config(flextrain_conf, file_name));
  for (const ConfigEntry& entry : entries) {
    if (to_lower(entry.key) != "endpointport") continue;
    const Result<int64_t> port = parse_int(entry.value);
    if (!port.ok() || *port < 1 || *port > 65535) {
      return invalid_argument("{}:{}: EndpointPort '{}' is not a port from 1 to 65535", file_name,
                              entry.line, entry.value);
    }
    return static_cast<int>(*port);
  }
  return kDefaultPort;
}

Result<ControllerLocation> discover_controller() {
  std::vector<std::string> files;
  const std::string named = environment("SLURM_CONF");
  if (!named.empty()) files.push_back(named);
  files.push_back("/etc/slurm/slurm.conf");
  files.push_back("/run/slurm/conf/slurm.conf");  // where "configless" slurmd keeps its copy

  int port = kDefaultPort;
  std::string conf_text;
  for (const std::string& file : files) {
    Result<std::string> text = read_file(file, size_t{64} << 20);
    if (!text.ok()) continue;
    conf_text = std::move(*text);
    ASSIGN_OR_RETURN(port, port_beside(file));
    break;
  }

  // The file costs slurmctld nothing and works while it is down; only slurmctld knows the whole
  // where the file includes others or there is none.
  Result<ControllerLocation> location = parse_slurm_config(conf_text, port);
  if (!location.ok() || includes_files(conf_text)) {
    Result<ControllerLocation> asked = parse_slurm_config(scontrol_config(), port);
    if (asked.ok()) location = std::move(asked);
  }

  if (const std::string host = environment("FLEXTRAIN_CONTROLLER"); !host.empty()) {
    Result<std::vector<HostPort>> hosts = parse_host_list(host, port);
    if (!hosts.ok()) return hosts.status().with_context("FLEXTRAIN_CONTROLLER");
    ControllerLocation given = location.ok() ? *location : ControllerLocation{};
    given.hosts = std::move(*hosts);
    return given;
  }
  if (!location.ok()) {
    return not_found(
        "no controller found: FLEXTRAIN_CONTROLLER is not set, and neither 'scontrol "
        "show config' nor {} names a SlurmctldHost",
        fmt::to_string(fmt::join(files, ", ")));
  }
  return location;
}

}  // namespace flextrain::protocol
