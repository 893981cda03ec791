// SPDX-License-Identifier: MIT
#include "cli/doctor_checks.h"

#include <algorithm>
#include <cmath>

#include "base/key_value_config.h"
#include "base/path.h"
#include "base/text.h"
#include "cli/time_spec.h"
#include "cli/values.h"

namespace flextrain::cli {
namespace {

constexpr FindingLevel kOk = FindingLevel::kOk, kNote = FindingLevel::kNote,
                       kWarning = FindingLevel::kWarning, kFault = FindingLevel::kFault;

std::string get(const std::map<std::string, std::string>& map, const std::string& key) {
  const auto found = map.find(key);
  return found == map.end() ? "" : found->second;
}

// "Key = Value" lines of `scontrol show config`, or "Key=Value" of slurm.conf.
std::map<std::string, std::string> parse_config(std::string_view text) {
  std::map<std::string, std::string> config;
  for (const std::string& raw : split(text, '\n')) {
    const std::string_view line = trim(std::string_view(raw).substr(0, raw.find('#')));
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos) continue;
    std::string value(trim(line.substr(equals + 1)));
    if (value == "(null)") value.clear();
    config[to_lower(trim(line.substr(0, equals)))] = value;
  }
  return config;
}

bool has_word(std::string_view list, std::string_view word) {
  const std::vector<std::string> words = split(list, ',');
  return std::any_of(words.begin(), words.end(),
                     [&](const std::string& w) { return to_lower(trim(w)) == word; });
}

// "Key=Value Key=Value …" of `scontrol -o show …`, one line.
std::map<std::string, std::string> parse_record(const std::string& line) {
  std::map<std::string, std::string> record;
  for (const std::string& word : split(line, ' ')) {
    const size_t equals = word.find('=');
    if (equals != std::string::npos && equals > 0)
      record.emplace(to_lower(word.substr(0, equals)), word.substr(equals + 1));
  }
  return record;
}

Result<std::string> output_of(Environment& environment, const std::vector<std::string>& argv) {
  ASSIGN_OR_RETURN(const CommandResult result, environment.run(argv));
  if (result.exit_code != 0) {
    std::string first = result.output.substr(0, result.output.find('\n'));
    return unavailable("{} failed: {}", argv[0], first.empty() ? "no message" : first);
  }
  return result.output;
}

std::string last_word(std::string_view text) {
  text = trim(text);
  const size_t blank = text.find_last_of(" \t\n");
  return std::string(blank == std::string_view::npos ? text : text.substr(blank + 1));
}

bool is_yes(const std::string& text) { return parse_bool(text).value_or(false); }

}  // namespace

Site look_at_site(Environment& environment) {
  Site site;
  std::string text;
  const Result<std::string> config = output_of(environment, {"scontrol", "show", "config"});
  if (config.ok()) {
    site.slurm_answers = true;
    site.config = parse_config(*config);
    site.slurm_conf = get(site.config, "slurm_conf");
  } else {
    site.slurm_error = config.status().message();
    site.slurm_conf = environment.variable("SLURM_CONF");
  }
  if (site.slurm_conf.empty()) site.slurm_conf = "/etc/slurm/slurm.conf";
  if (!config.ok()) {
    const Result<std::string> file = environment.read_file(site.slurm_conf);
    if (file.ok()) site.config = parse_config(*file);
  }

  site.flextrain_conf = parent_folder(site.slurm_conf) + "/flextrain.conf";
  site.flextrain_conf_exists = environment.file(site.flextrain_conf).exists;
  if (site.flextrain_conf_exists) {
    const Result<std::string> file = environment.read_file(site.flextrain_conf);
    if (!file.ok()) {
      site.flextrain_error = file.status().message();
    } else {
      const auto entries = parse_key_value_config(*file, site.flextrain_conf);
      if (!entries.ok()) site.flextrain_error = entries.status().message();
      if (entries.ok())
        for (const ConfigEntry& entry : *entries) site.settings[to_lower(entry.key)] = entry.value;
    }
  }

  const std::string host(trim(output_of(environment, {"hostname", "-s"}).value_or("")));
  for (const auto& [key, value] : site.config)
    if (key.rfind("slurmctldhost", 0) == 0 && !host.empty() &&
        trim(value.substr(0, value.find('('))) == host)
      site.on_controller_host = true;
  return site;
}

void check_slurm(Environment& environment, const Site& site, std::vector<Finding>& findings) {
  const Result<std::string> version = output_of(environment, {"scontrol", "--version"});
  if (!version.ok()) {
    findings.push_back({kFault, "slurm", version.status().message(),
                        version.status().code() == StatusCode::kNotFound
                            ? "install Slurm's client commands (slurm-client) or mend PATH"
                            : "they find no slurm.conf: set SLURM_CONF or install it"});
    return;
  }
  if (!site.slurm_answers) {
    findings.push_back({kFault, "slurmctld", site.slurm_error,
                        "start slurmctld (systemctl start slurmctld); a plugin that cannot be "
                        "loaded keeps it from "
                        "starting, its log says which"});
    return;
  }
  const std::string mine = last_word(*version), theirs = get(site.config, "slurm_version");
  if (!theirs.empty() && mine != theirs)
    findings.push_back({kWarning, "slurm",
                        fmt::format("the commands are {}, slurmctld is {}", mine, theirs),
                        "our plugins load only into the exact release they were built for: build "
                        "them against slurmctld's headers"});
  else
    findings.push_back({kOk, "slurm", fmt::format("slurmctld answers, release {}", mine), ""});
}

void check_scheduler(Environment&, const Site& site, std::vector<Finding>& findings) {
  if (site.config.empty()) {
    findings.push_back(
        {kWarning, "scheduler",
         fmt::format("{} cannot be read, so nothing is known of it", site.slurm_conf),
         "set SLURM_CONF or run doctor where slurmctld runs"});
    return;
  }
  const std::string type = get(site.config, "schedulertype");
  if (type != "sched/flextrain")
    findings.push_back(
        {kFault, "scheduler",
         fmt::format("SchedulerType is {}, so no controller runs", type.empty() ? "not set" : type),
         fmt::format("set SchedulerType=sched/flextrain in {} and restart slurmctld; "
                     "the present scheduler goes on inside it (InnerScheduler)",
                     site.slurm_conf)});
  else
    findings.push_back({kOk, "scheduler", "SchedulerType is sched/flextrain", ""});
  if (!has_word(get(site.config, "jobsubmitplugins"), "flextrain"))
    findings.push_back({kFault, "job_submit", "JobSubmitPlugins does not name flextrain",
                        fmt::format("add flextrain to JobSubmitPlugins in {} and restart slurmctld",
                                    site.slurm_conf)});
  else
    findings.push_back({kOk, "job_submit", "JobSubmitPlugins names flextrain", ""});
  const std::string parameters = get(site.config, "schedulerparameters");
  if (parameters.find("bf_interval") == std::string::npos ||
      parameters.find("batch_sched_delay") == std::string::npos)
    findings.push_back(
        {kNote, "scheduler",
         "SchedulerParameters leaves bf_interval or batch_sched_delay at its default: a job behind "
         "a blocked one may start 20 to 30 s after its GPUs came back",
         "SchedulerParameters=batch_sched_delay=0,bf_interval=2,sched_interval=10,bf_continue "
         "suits "
         "small clusters"});
}

void check_plugins(Environment& environment, const Site& site, std::vector<Finding>& findings) {
  const std::string dir = get(site.config, "plugindir");
  if (dir.empty()) return;  // slurm.conf without the key: only slurmctld knows its default
  std::vector<std::string> wanted = {"spank_flextrain.so"};
  if (site.on_controller_host) {
    wanted.push_back("sched_flextrain.so");
    wanted.push_back("job_submit_flextrain.so");
  }
  std::string missing;
  for (const std::string& name : wanted) {
    bool found = false;
    for (const std::string& folder : split(dir, ':'))
      found = found || environment.file(folder + "/" + name).exists;
    if (!found) missing += (missing.empty() ? "" : ", ") + name;
  }
  if (!missing.empty())
    findings.push_back({kFault, "plugins", fmt::format("{} lacks {}", dir, missing),
                        "install them there (docs/admin-guide.md)"});
  else
    findings.push_back(
        {kOk, "plugins", fmt::format("{} of {} are in {}", wanted.size(), wanted.size(), dir), ""});
}

void check_flags(Environment& environment, const Site& site, std::vector<Finding>& findings) {
  std::string path = get(site.config, "plugstackconfig");
  if (path.empty()) path = parent_folder(site.slurm_conf) + "/plugstack.conf";
  const Result<std::string> text = environment.read_file(path);
  bool required = false;
  if (text.ok())
    for (const std::string& line : split(*text, '\n')) {
      const std::string_view entry = trim(std::string_view(line).substr(0, line.find('#')));
      if (entry.find("spank_flextrain.so") != std::string_view::npos)
        required = required || entry.rfind("required", 0) == 0;
    }
  if (required)
    findings.push_back({kWarning, "plugstack",
                        fmt::format("{} says 'required' for spank_flextrain.so: were the file "
                                    "missing on a host, no job could start there",
                                    path),
                        "write 'optional' instead"});
  // What sbatch itself shows settles it, whatever files are included from where.
  const Result<std::string> help = output_of(environment, {"sbatch", "--help"});
  if (!help.ok())
    findings.push_back({kWarning, "flags", help.status().message(),
                        "sbatch must run here to show whether it knows --elastic"});
  else if (help->find("--elastic") == std::string::npos)
    findings.push_back({kFault, "flags", "sbatch does not know --elastic",
                        fmt::format("add the line 'optional spank_flextrain.so' to {}", path)});
  else
    findings.push_back({kOk, "flags", "sbatch knows --elastic", ""});
}

void check_configuration(Environment&, const Site& site, std::vector<Finding>& findings) {
  if (!site.flextrain_conf_exists)
    findings.push_back(
        {kNote, "flextrain.conf",
         fmt::format("{} does not exist; every key has its default", site.flextrain_conf), ""});
  else if (!site.flextrain_error.empty())
    findings.push_back({kFault, "flextrain.conf", site.flextrain_error,
                        "mend the line; as long as it is wrong elasticity stays off"});
  else if (const std::string enabled = get(site.settings, "enabled");
           !enabled.empty() && !is_yes(enabled))
    findings.push_back({kFault, "flextrain.conf",
                        fmt::format("{} says Enabled={}", site.flextrain_conf, enabled),
                        "set Enabled=yes and run scontrol reconfigure"});
  else
    findings.push_back(
        {kOk, "flextrain.conf", fmt::format("{} is well formed", site.flextrain_conf), ""});
}

void check_munge(Environment& environment, const Site& site, std::vector<Finding>& findings) {
  const Status status = environment.munge_round_trip(get(site.settings, "mungesocket"));
  if (!status.ok())
    findings.push_back(
        {kFault, "munge", status.message(),
         "start munged on this host (systemctl start munge); all hosts need the same "
         "munge.key and clocks that agree"});
  else
    findings.push_back({kOk, "munge", "a credential was made and read back", ""});
}

void check_controller(Environment& environment, const Site& site, std::vector<Finding>& findings) {
  const Result<Json> body = environment.query({"diag", Json::object()});
  if (!body.ok()) {
    findings.push_back(
        {kFault, "controller", body.status().message(),
         site.slurm_answers
             ? "look for lines of flextrain in slurmctld's log; EndpointPort must be free on the "
               "controller's host and reachable from here"
             : "start slurmctld first"});
    return;
  }
  const Json& rows = member(*body, "rows");
  const Json row = rows.is_array() && !rows.empty() ? rows.front() : Json::object();
  if (member(row, "elastic").is_boolean() && !bool_of(row, "elastic")) {
    findings.push_back({kFault, "controller",
                        fmt::format("elasticity is off: {}", text_of(row, "elastic_reason")),
                        fmt::format("mend {} and run scontrol reconfigure", site.flextrain_conf)});
  } else {
    const int64_t age = environment.now() - int_of(row, "last_tick");
    // With a long queue and no GPU lent it looks seldom, and says so.
    const int64_t longest =
        3 * std::max<int64_t>(int_of(row, "tick_seconds"), 1) + 30 + int_of(row, "rest_seconds");
    if (int_of(row, "last_tick") > 0 && age > longest)
      findings.push_back({kFault, "controller",
                          fmt::format("it answers, but its last tick was {} s ago", age),
                          "look for lines of flextrain in slurmctld's log"});
    else
      findings.push_back(
          {kOk, "controller",
           fmt::format("it answers: {} jobs, {} companions, {} agents", int_of(row, "jobs"),
                       int_of(row, "companions"), int_of(row, "agents")),
           ""});
  }
  if (const std::string note = text_of(row, "database_note"); !note.empty())
    findings.push_back({kWarning, "database", note, "look at the disk; the old file is kept"});
  const int64_t error_age = environment.now() - int_of(row, "last_error_time");
  if (const std::string error = text_of(row, "last_error"); !error.empty() && error_age < 600)
    findings.push_back({kWarning, "controller",
                        fmt::format("{} s ago: {}", std::max<int64_t>(error_age, 0), error), ""});
}

void check_database(Environment& environment, const Site& site, std::vector<Finding>& findings) {
  if (!site.on_controller_host || !environment.is_root()) return;  // nobody else can look
  std::string path = get(site.settings, "databasepath");
  if (path.empty()) path = "/var/lib/flextrain/flextrain.db";
  const FileFacts folder = environment.file(parent_folder(path));
  if (!folder.exists) {
    findings.push_back({kFault, "database",
                        fmt::format("its folder {} does not exist", parent_folder(path)),
                        "create it for SlurmUser, mode 0700, or set DatabasePath"});
    return;
  }
  const FileFacts file = environment.file(path);
  if (!file.exists) {
    findings.push_back(
        {kNote, "database",
         fmt::format("{} does not exist; the controller makes it when it first runs", path), ""});
    return;
  }
  constexpr int64_t kLow = int64_t{64} << 20;
  if ((file.mode & 077) != 0)
    findings.push_back(
        {kWarning, "database",
         fmt::format("{} has mode {:04o}: others could read everybody's jobs", path, file.mode),
         fmt::format("chmod 600 {}", path)});
  else if (file.free_bytes < kLow)
    findings.push_back(
        {kWarning, "database",
         fmt::format("{} free on the disk of {}",
                     file.free_bytes > 0 ? bytes_text(file.free_bytes) : "nothing", path),
         "free space, or lower RetentionDays"});
  else
    findings.push_back({kOk, "database",
                        fmt::format("{}, {}", path, bytes_text(static_cast<double>(file.size))),
                        ""});
}

void check_partitions(Environment& environment, const Site& site, std::vector<Finding>& findings) {
  if (!site.slurm_answers) return;
  const Result<std::string> text = output_of(environment, {"scontrol", "-o", "show", "partition"});
  if (!text.ok()) {
    findings.push_back({kWarning, "partitions", text.status().message(), ""});
    return;
  }
  std::map<std::string, std::string> state;
  for (const std::string& line : split(*text, '\n')) {
    const auto record = parse_record(line);
    if (!get(record, "partitionname").empty())
      state[get(record, "partitionname")] = get(record, "state");
  }
  const auto check = [&](const std::string& key, const std::string& name) {
    if (state.count(name) == 0)
      findings.push_back({kFault, "partitions",
                          fmt::format("{} names '{}', which does not exist", key, name),
                          fmt::format("mend {} in {}", key, site.flextrain_conf)});
    else if (state[name] != "UP")
      findings.push_back({kWarning, "partitions",
                          fmt::format("partition {} is {}", name, state[name]),
                          fmt::format("scontrol update PartitionName={} State=UP", name)});
    else
      return true;
    return false;
  };
  bool good = true;
  const std::string listed = get(site.settings, "partitions");
  for (const std::string& name : split(listed, ','))
    if (!trim(name).empty()) good = check("Partitions", std::string(trim(name))) && good;
  if (const std::string name = get(site.settings, "companionpartition"); !name.empty())
    good = check("CompanionPartition", name) && good;
  if (good)
    findings.push_back({kOk, "partitions",
                        listed.empty() ? fmt::format("elasticity is on in all {}", state.size())
                                       : fmt::format("elasticity is on in {}", listed),
                        ""});
}

void check_gpus(Environment& environment, const Site& site, std::vector<Finding>& findings) {
  if (!site.slurm_answers) return;
  if (!has_word(get(site.config, "grestypes"), "gpu"))
    findings.push_back({kFault, "gpus", "GresTypes does not name gpu",
                        fmt::format("set GresTypes=gpu in {}", site.slurm_conf)});
  const Result<std::string> text = output_of(environment, {"scontrol", "-o", "show", "node"});
  if (!text.ok()) {
    findings.push_back({kWarning, "gpus", text.status().message(), ""});
    return;
  }
  int nodes = 0, away = 0;
  for (const std::string& line : split(*text, '\n')) {
    const auto record = parse_record(line);
    if (get(record, "gres").find("gpu") == std::string::npos) continue;
    ++nodes;
    const std::string state = get(record, "state");
    away += state.find("DOWN") != std::string::npos || state.find("DRAIN") != std::string::npos ||
            state.find('*') != std::string::npos;
  }
  if (nodes == 0)
    findings.push_back({kFault, "gpus", "no node has Gres=gpu", "see gres.conf(5)"});
  else if (away > 0)
    findings.push_back({kNote, "gpus",
                        fmt::format("{} of {} GPU nodes are down or drained", away, nodes),
                        "sinfo -R says why"});
  else
    findings.push_back({kOk, "gpus", fmt::format("{} nodes with GPUs, all up", nodes), ""});
}

// With CompanionPreemptable=yes Slurm kills a companion GraceTime after it asked; the save and the
// leaving must fit into that (and Slurm sends a preempted companion USR1 only with
// preempt_send_user_signal).
void check_preemption(Environment& environment, const Site& site, std::vector<Finding>& findings) {
  if (!is_yes(get(site.settings, "companionpreemptable")) || !site.slurm_answers) return;
  const size_t before = findings.size();
  const std::string type = get(site.config, "preempttype");
  if (type.empty() || type == "preempt/none" || type == "none")
    findings.push_back({kFault, "preemption", "CompanionPreemptable=yes, but PreemptType is none",
                        "set PreemptType=preempt/partition_prio (or preempt/qos)"});
  if (!has_word(get(site.config, "slurmctldparameters"), "preempt_send_user_signal"))
    findings.push_back(
        {kFault, "preemption",
         "CompanionPreemptable=yes, but companions are not told that they must leave",
         "add preempt_send_user_signal to SlurmctldParameters"});
  const std::string name = get(site.settings, "companionpartition");
  const Result<std::string> text = output_of(environment, {"scontrol", "-o", "show", "partition"});
  int64_t grace = -1;
  if (text.ok())
    for (const std::string& line : split(*text, '\n')) {
      const auto record = parse_record(line);
      if (get(record, "partitionname") == name)
        grace = parse_int(get(record, "gracetime")).value_or(-1);
    }
  double measured = 0;
  if (const Result<Json> body = environment.query({"jobs", Json{{"all", true}}}); body.ok())
    for (const Json& row : member(*body, "rows")) {
      const double cost = double_of(row, "shrink_overhead_seconds");
      if (std::isfinite(cost)) measured = std::max(measured, cost);
    }
  if (!name.empty() && grace >= 0 && static_cast<double>(grace) < measured)
    findings.push_back({kFault, "preemption",
                        fmt::format("GraceTime of {} is {} s, but a shrink took up to {:.1f} s",
                                    name, grace, measured),
                        fmt::format("set GraceTime={} or more for that partition",
                                    static_cast<int64_t>(std::ceil(measured * 1.5)) + 5)});
  if (findings.size() == before)
    findings.push_back({kOk, "preemption", "companions are preemptable and told in time", ""});
}

void check_programs(Environment& environment, const Site&, std::vector<Finding>& findings) {
  for (const std::string program : {"flextrain-agent", "flextrain-trainer"}) {
    const Result<CommandResult> result = environment.run({program, "--help"});
    if (!result.ok() || result->exit_code == 127)
      findings.push_back({kWarning, "programs", fmt::format("{} is not in PATH here", program),
                          "job scripts need it on the compute nodes"});
    else
      findings.push_back({kOk, "programs", fmt::format("{} is there", program), ""});
  }
}

}  // namespace flextrain::cli
