// SPDX-License-Identifier: MIT
#include "agent/slurm_job.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "base/text.h"

namespace flextrain::agent {
namespace {

constexpr size_t kMaxHosts = 65536;
constexpr const char* kScontrolSeconds = "5";

// Splits at commas outside brackets.
Result<std::vector<std::string>> split_outside_brackets(std::string_view text) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (const char c : text) {
    if (c == '[') ++depth;
    if (c == ']') --depth;
    if (depth < 0 || depth > 1) return invalid_argument("'{}' is not a host list", text);
    if (c == ',' && depth == 0) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  if (depth != 0) return invalid_argument("'{}' is not a host list: a bracket is open", text);
  return parts;
}

Status expand_one(const std::string& pattern, std::vector<std::string>& hosts) {
  const size_t open = pattern.find('[');
  if (open == std::string::npos) {
    if (pattern.empty()) return invalid_argument("a host list has an empty name");
    hosts.push_back(pattern);
    return hosts.size() > kMaxHosts ? resource_exhausted("a host list is too long") : Status();
  }
  const size_t close = pattern.find(']', open);
  const std::string head = pattern.substr(0, open), tail = pattern.substr(close + 1);
  for (const std::string& range : split(pattern.substr(open + 1, close - open - 1), ',')) {
    const size_t dash = range.find('-');
    const std::string first = range.substr(0, dash);
    const std::string last = dash == std::string::npos ? first : range.substr(dash + 1);
    ASSIGN_OR_RETURN(const int64_t low, parse_int(first));
    ASSIGN_OR_RETURN(const int64_t high, parse_int(last));
    if (low < 0 || high < low || high - low > static_cast<int64_t>(kMaxHosts)) {
      return invalid_argument("'{}' in a host list is not a range", range);
    }
    for (int64_t i = low; i <= high; ++i) {
      RETURN_IF_ERROR(expand_one(
          head + fmt::format("{:0{}}", i, static_cast<int>(first.size())) + tail, hosts));
    }
  }
  return {};
}

// Value of "Key=" in scontrol's one-line output, up to the next blank.
std::string field(std::string_view text, std::string_view key) {
  const std::string pattern = " " + std::string(key) + "=";
  size_t at = text.find(pattern);
  if (at == std::string_view::npos) return "";
  at += pattern.size();
  return std::string(text.substr(at, text.find_first_of(" \n", at) - at));
}

struct NodeGpus {
  std::vector<std::string> hosts;
  int gpus = 0;
  std::string type;
};

// "gpu:a100:2(IDX:0-1),gpu:v100:1(IDX:2)" → 3 GPUs; type of the first one.
Status parse_gres(std::string_view gres, NodeGpus& node) {
  std::string flat;  // without "(IDX:0,2)", whose commas do not separate
  int depth = 0;
  for (const char c : gres) {
    if (c == '(') ++depth;
    if (depth == 0) flat += c;
    if (c == ')') --depth;
  }
  for (const std::string& part : split(flat, ',')) {
    const auto fields = split(part, ':');
    if (fields.size() < 2 || fields[0] != "gpu") continue;
    ASSIGN_OR_RETURN(const int64_t count, parse_int(fields.back()));
    node.gpus += static_cast<int>(count);
    if (fields.size() == 3 && node.type.empty()) node.type = fields[1];
  }
  return {};
}

// The "Nodes=n[1-2] CPU_IDs=0-1 Mem=0 GRES=gpu:2(IDX:0-1)" groups of `scontrol show job -d -o`.
Result<std::vector<NodeGpus>> parse_node_groups(std::string_view text) {
  std::vector<NodeGpus> groups;
  size_t at = 0;
  while ((at = text.find(" Nodes=", at)) != std::string_view::npos) {
    size_t next = text.find(" Nodes=", at + 1);
    const std::string_view group =
        text.substr(at, next == std::string_view::npos ? next : next - at);
    at += 1;
    if (group.find(" CPU_IDs=") == std::string_view::npos) continue;
    NodeGpus node;
    ASSIGN_OR_RETURN(node.hosts, expand_hostlist(field(group, "Nodes")));
    RETURN_IF_ERROR(parse_gres(field(group, "GRES"), node));
    groups.push_back(std::move(node));
  }
  return groups;
}

int64_t parse_local_time(const std::string& text) {  // "2026-11-29T18:16:29" in TZ, 0 = unknown
  std::tm time{};
  if (::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &time) == nullptr) return 0;
  time.tm_isdst = -1;
  return std::max<int64_t>(0, std::mktime(&time));
}

// Output of a command without shell syntax in its words; nullopt unless it ends with 0.
std::optional<std::string> output_of(const std::string& command) {
  FILE* pipe = ::popen(command.c_str(), "re");
  if (pipe == nullptr) return std::nullopt;
  std::string text;
  std::array<char, 16384> buffer{};
  while (const size_t got = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
    text.append(buffer.data(), got);
  }
  if (::pclose(pipe) != 0) return std::nullopt;
  return text;
}

}  // namespace

Result<std::vector<std::string>> expand_hostlist(std::string_view text) {
  std::vector<std::string> hosts;
  ASSIGN_OR_RETURN(const std::vector<std::string> parts, split_outside_brackets(text));
  for (const std::string& part : parts) RETURN_IF_ERROR(expand_one(part, hosts));
  return hosts;
}

Result<std::vector<int>> expand_counts(std::string_view text) {
  std::vector<int> counts;
  for (const std::string& part : split(text, ',')) {
    const size_t open = part.find("(x");
    ASSIGN_OR_RETURN(const int64_t count, parse_int(part.substr(0, open)));
    int64_t times = 1;
    if (open != std::string::npos) {
      if (!part.ends_with(')')) return invalid_argument("'{}' is not a count per node", part);
      ASSIGN_OR_RETURN(times, parse_int(part.substr(open + 2, part.size() - open - 3)));
    }
    if (count < 0 || times < 1 || times > static_cast<int64_t>(kMaxHosts)) {
      return invalid_argument("'{}' is not a count per node", part);
    }
    counts.insert(counts.end(), static_cast<size_t>(times), static_cast<int>(count));
  }
  return counts;
}

Result<SlurmJob> read_slurm_job(const Getenv& environment, std::string_view scontrol_output) {
  const std::string id = environment("SLURM_JOB_ID");
  if (id.empty()) return not_found("SLURM_JOB_ID is not set: this is no Slurm job");
  SlurmJob job;
  const Result<int64_t> number = parse_int(id);
  if (!number.ok() || *number < 1 || *number > UINT32_MAX) {
    return invalid_argument("SLURM_JOB_ID '{}' is not a job id", id);
  }
  job.identity.job_id = static_cast<uint32_t>(*number);
  job.identity.cluster = to_lower(environment("SLURM_CLUSTER_NAME"));
  job.identity.restart_count =
      static_cast<int>(parse_int(environment("SLURM_RESTART_COUNT")).value_or(0));
  job.identity.submit_time = parse_local_time(field(scontrol_output, "SubmitTime"));

  std::string nodes = environment("SLURM_JOB_NODELIST");
  if (nodes.empty()) nodes = environment("SLURM_NODELIST");
  // Its owner may have given nodes up since the environment was made.
  const std::string now = field(scontrol_output, "NodeList");
  Result<std::vector<std::string>> hosts =
      expand_hostlist(now.empty() || now == "(null)" ? nodes : now);
  if (!hosts.ok()) return hosts.status().with_context("SLURM_JOB_NODELIST");
  job.own_host = environment("SLURMD_NODENAME");
  if (job.own_host.empty()) job.own_host = hosts->front();
  const auto own = std::find(hosts->begin(), hosts->end(), job.own_host);
  if (own == hosts->end()) {
    return failed_precondition(
        "this node, {}, is not in the job's node list {}: run the agent in "
        "the batch script",
        job.own_host, nodes);
  }
  std::rotate(hosts->begin(), own, own + 1);  // rank 0 belongs beside the agent

  ASSIGN_OR_RETURN(const std::vector<NodeGpus> groups, parse_node_groups(scontrol_output));
  const int gpus_here = static_cast<int>(parse_int(environment("SLURM_GPUS_ON_NODE")).value_or(0));
  std::vector<int> counts(hosts->size(), groups.empty() ? gpus_here : 0);
  for (const NodeGpus& group : groups) {
    if (job.device_type.empty()) job.device_type = group.type;
    for (size_t i = 0; i < hosts->size(); ++i) {
      if (std::find(group.hosts.begin(), group.hosts.end(), (*hosts)[i]) != group.hosts.end()) {
        counts[i] += group.gpus;
      }
    }
  }
  job.has_gpus = std::any_of(counts.begin(), counts.end(), [](int count) { return count > 0; });
  if (!job.has_gpus) {
    const Result<std::vector<int>> tasks = expand_counts(environment("SLURM_TASKS_PER_NODE"));
    // In the order of the node list, before the rotation above.
    const auto listed = *expand_hostlist(nodes);
    for (size_t i = 0; i < hosts->size(); ++i) {
      const auto at = static_cast<size_t>(std::find(listed.begin(), listed.end(), (*hosts)[i]) -
                                          listed.begin());
      counts[i] = tasks.ok() && at < tasks->size() ? (*tasks)[at] : 1;
    }
  }
  for (size_t i = 0; i < hosts->size(); ++i) {
    job.allocations.push_back({job.identity.job_id, (*hosts)[i], counts[i], ""});
  }
  return job;
}

Result<SlurmJob> own_slurm_job() {
  const Getenv environment = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  const Result<int64_t> id = parse_int(environment("SLURM_JOB_ID"));
  std::optional<std::string> shown;
  if (id.ok()) {
    shown = output_of(
        fmt::format("timeout {} scontrol show job -d -o {} 2>/dev/null", kScontrolSeconds, *id));
  }
  return read_slurm_job(environment, shown.value_or(""));
}

Result<std::set<uint32_t>> running_jobs(const std::set<uint32_t>& jobs) {
  if (jobs.empty()) return std::set<uint32_t>{};
  const auto shown =
      output_of(fmt::format("timeout {} squeue -h -t RUNNING -o %A 2>/dev/null -j {}",
                            kScontrolSeconds, fmt::to_string(fmt::join(jobs, ","))));
  // Of ids that are all unknown squeue says "Invalid job id" and fails, as it does when slurmctld
  // is away; only scontrol ping tells the two apart.
  if (!shown.has_value()) {
    const auto ping =
        output_of(fmt::format("timeout {} scontrol ping 2>/dev/null", kScontrolSeconds));
    if (!ping.has_value() || ping->find(" UP") == std::string::npos) {
      return unavailable("slurmctld does not answer");
    }
    return std::set<uint32_t>{};
  }
  std::set<uint32_t> running;
  for (const std::string& line : split(*shown, '\n')) {
    if (const auto id = parse_int(trim(line)); id.ok()) running.insert(static_cast<uint32_t>(*id));
  }
  return running;
}

void end_rank_steps(const std::set<uint32_t>& jobs) {
  const auto shown = output_of(fmt::format("timeout {} squeue -h -s -o '%i %j' 2>/dev/null -j {}",
                                           kScontrolSeconds, fmt::to_string(fmt::join(jobs, ","))));
  std::string steps;
  for (const std::string& line : split(shown.value_or(""), '\n')) {
    const size_t space = line.find(' ');
    if (space == std::string::npos || line.substr(space + 1) != kRankStepName) continue;
    const std::string step = line.substr(0, space);
    if (step.find_first_not_of("0123456789.+") == std::string::npos) steps += " " + step;
  }
  if (steps.empty()) return;
  (void)output_of(
      fmt::format("timeout {} scancel --signal=KILL{} 2>/dev/null", kScontrolSeconds, steps));
}

SlurmJob local_job(int ranks) {
  SlurmJob job;
  job.own_host = "localhost";
  job.allocations.push_back({0, "localhost", ranks, ""});
  return job;
}

}  // namespace flextrain::agent
