// SPDX-License-Identifier: MIT
#include "protocol/messages.h"

#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

namespace flextrain::protocol {
namespace {

constexpr size_t kMaxText = 4096;  // names, reasons, paths
constexpr size_t kMaxError = 65536;
constexpr size_t kMaxEnvironmentValue = size_t{128} << 10;
constexpr size_t kMaxEntries = 65536;  // of any list or map
constexpr int kMaxGpus = 1 << 20;
constexpr int64_t kMaxSeconds = int64_t{10} * 366 * 86400;

// Reads fields of one JSON object and keeps the first error. A missing field leaves the default:
// a peer of another release may not know it. A field of a wrong type or out of bounds is an error;
// unknown fields are skipped.
class FieldReader {
 public:
  FieldReader(const Json& json, std::string what) : json_(json), what_(std::move(what)) {
    if (!json.is_object()) fail("", "is not a JSON object");
  }

  template <typename Integer>
  void integer(const char* name, Integer& value, int64_t low, int64_t high) {
    const Json* field = find(name);
    if (field == nullptr) return;
    if (!field->is_number_integer()) return fail(name, "is not a whole number");
    // Unsigned values beyond int64 would wrap into the range below.
    if (field->is_number_unsigned() &&
        field->get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return fail(name, "is out of range");
    }
    const int64_t number = field->get<int64_t>();
    if (number < low || number > high) {
      return fail(name, fmt::format("is {}, outside [{}, {}]", number, low, high));
    }
    value = static_cast<Integer>(number);
  }

  // null stands for NaN: JSON has no other way to say that a loss diverged.
  void number(const char* name, double& value, double low, double high, bool allow_nan = false) {
    const Json* field = find(name);
    if (field == nullptr) return;
    if (allow_nan && field->is_null()) {
      value = std::numeric_limits<double>::quiet_NaN();
      return;
    }
    if (!field->is_number()) return fail(name, "is not a number");
    const double got = field->get<double>();
    if (!(got >= low && got <= high)) {
      return fail(name, fmt::format("is {}, outside [{}, {}]", got, low, high));
    }
    value = got;
  }

  void boolean(const char* name, bool& value) {
    const Json* field = find(name);
    if (field == nullptr) return;
    if (!field->is_boolean()) return fail(name, "is not true or false");
    value = field->get<bool>();
  }

  void text(const char* name, std::string& value, size_t max_size = kMaxText) {
    const Json* field = find(name);
    if (field == nullptr) return;
    if (!field->is_string()) return fail(name, "is not a string");
    const auto& got = field->get_ref<const std::string&>();
    if (got.size() > max_size) {
      return fail(name, fmt::format("is {} bytes, more than {}", got.size(), max_size));
    }
    if (got.find('\0') != std::string::npos) return fail(name, "holds a NUL byte");
    value = got;
  }

  void json(const char* name, Json& value) {
    if (const Json* field = find(name)) value = *field;
  }

  // One of `names`; value = its index as the enum.
  template <typename Enum>
  void choice(const char* name, Enum& value, std::initializer_list<std::string_view> names) {
    std::string got;
    if (find(name) == nullptr) return;
    text(name, got);
    if (!status_.ok()) return;
    int index = 0;
    for (const std::string_view candidate : names) {
      if (candidate == got) {
        value = static_cast<Enum>(index);
        return;
      }
      ++index;
    }
    fail(name, fmt::format("is '{}', which this release does not know", got));
  }

  // Calls decode(element, "what.name[i]") → Status for each element.
  template <typename Decode>
  void list(const char* name, Decode&& decode) {
    const Json* field = find(name);
    if (field == nullptr) return;
    if (!field->is_array()) return fail(name, "is not a list");
    if (field->size() > kMaxEntries) return fail(name, "is too long");
    size_t i = 0;
    for (const Json& element : *field) {
      if (Status status = decode(element, fmt::format("{}.{}[{}]", what_, name, i++));
          !status.ok()) {
        if (status_.ok()) status_ = std::move(status);
        return;
      }
    }
  }

  template <typename Decode>
  void object(const char* name, Decode&& decode) {  // decode(key, value) → Status
    const Json* field = find(name);
    if (field == nullptr) return;
    if (!field->is_object()) return fail(name, "is not an object");
    if (field->size() > kMaxEntries) return fail(name, "has too many entries");
    for (const auto& [key, value] : field->items()) {
      if (Status status = decode(key, value); !status.ok()) {
        if (status_.ok()) status_ = std::move(status);
        return;
      }
    }
  }

  void require(bool condition, const char* name, std::string_view problem) {
    if (status_.ok() && !condition) fail(name, problem);
  }

  const std::string& what() const { return what_; }
  const Status& status() const { return status_; }

 private:
  const Json* find(const char* name) const {
    if (!status_.ok()) return nullptr;
    const auto it = json_.find(name);
    return it == json_.end() ? nullptr : &*it;
  }
  void fail(std::string_view name, std::string_view problem) {
    if (!status_.ok()) return;
    status_ = name.empty() ? invalid_argument("{} {}", what_, problem)
                           : invalid_argument("{}: field '{}' {}", what_, name, problem);
  }

  const Json& json_;
  const std::string what_;
  Status status_;
};

template <typename Message>
Result<Message> finish(const FieldReader& reader, Message message) {
  if (!reader.status().ok()) return reader.status();
  return message;
}

Json allocations_to_json(const std::vector<Allocation>& allocations) {
  Json list = Json::array();
  for (const Allocation& a : allocations) {
    list.push_back(
        {{"job_id", a.job_id}, {"host", a.host}, {"gpus", a.gpus}, {"address", a.address}});
  }
  return list;
}

void read_allocations(FieldReader& reader, std::vector<Allocation>& allocations) {
  reader.list("allocations", [&](const Json& element, const std::string& what) {
    FieldReader fields(element, what);
    Allocation a;
    fields.integer("job_id", a.job_id, 0, std::numeric_limits<uint32_t>::max());
    fields.text("host", a.host, 255);
    fields.integer("gpus", a.gpus, 0, kMaxGpus);
    fields.text("address", a.address, 255);
    fields.require(!a.host.empty(), "host", "is empty");
    allocations.push_back(std::move(a));
    return fields.status();
  });
}

Json finite_or_null(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

constexpr double kHuge = std::numeric_limits<double>::max();

}  // namespace

Json to_json(const Envelope& m) {
  Json json = {{"version", m.version},   {"type", m.type},
               {"nonce", m.nonce},       {"controller_epoch", m.controller_epoch},
               {"sequence", m.sequence}, {"body", m.body}};
  if (m.job.job_id != 0) {
    json["job"] = {{"cluster", m.job.cluster},
                   {"job_id", m.job.job_id},
                   {"submit_time", m.job.submit_time},
                   {"restart_count", m.job.restart_count}};
  }
  if (!m.error.empty()) json["error"] = m.error;
  return json;
}

template <>
Result<Envelope> from_json<Envelope>(const Json& json) {
  FieldReader reader(json, "envelope");
  Envelope m;
  m.version = 0;  // a message that names none is refused by the bounds below
  reader.integer("version", m.version, 1, std::numeric_limits<int>::max());
  reader.require(m.version != 0, "version", "is missing");
  reader.text("type", m.type, 64);
  reader.text("nonce", m.nonce, 128);
  reader.integer("controller_epoch", m.controller_epoch, 0, std::numeric_limits<int64_t>::max());
  reader.integer("sequence", m.sequence, 0, std::numeric_limits<int64_t>::max());
  reader.text("error", m.error, kMaxError);
  reader.json("body", m.body);
  reader.object("job", [&](const std::string&, const Json&) { return Status(); });
  if (reader.status().ok() && json.contains("job")) {
    FieldReader job(json["job"], "envelope.job");
    job.text("cluster", m.job.cluster, 255);
    job.integer("job_id", m.job.job_id, 0, std::numeric_limits<uint32_t>::max());
    job.integer("submit_time", m.job.submit_time, 0, std::numeric_limits<int64_t>::max());
    job.integer("restart_count", m.job.restart_count, 0, std::numeric_limits<int>::max());
    if (!job.status().ok()) return job.status();
  }
  return finish(reader, std::move(m));
}

Json to_json(const RegisterRequest& m) {
  return {{"role", m.role == AgentRole::kBase ? "base" : "companion"},
          {"base_job_id", m.base_job_id},
          {"intent_id", m.intent_id},
          {"allocations", allocations_to_json(m.allocations)},
          {"fingerprint", m.fingerprint},
          {"numerics", m.numerics},
          {"agent_version", m.agent_version},
          {"fingerprint_command", m.fingerprint_command},
          {"agent_path", m.agent_path},
          {"work_dir", m.work_dir},
          {"environment", m.environment},
          {"rlimits", m.rlimits},
          {"umask", m.umask}};
}

template <>
Result<RegisterRequest> from_json<RegisterRequest>(const Json& json) {
  FieldReader reader(json, "register");
  RegisterRequest m;
  reader.choice("role", m.role, {"base", "companion"});
  reader.integer("base_job_id", m.base_job_id, 0, std::numeric_limits<uint32_t>::max());
  reader.text("intent_id", m.intent_id, 128);
  read_allocations(reader, m.allocations);
  reader.text("fingerprint", m.fingerprint);
  reader.text("numerics", m.numerics, 16);
  reader.require(m.numerics == "exact" || m.numerics == "fp32", "numerics",
                 "is neither exact nor fp32");
  reader.text("agent_version", m.agent_version, 64);
  reader.list("fingerprint_command", [&](const Json& element, const std::string& what) {
    if (!element.is_string()) return invalid_argument("{} is not a string", what);
    m.fingerprint_command.push_back(element.get<std::string>());
    if (m.fingerprint_command.back().size() > kMaxText) {
      return invalid_argument("{} is too long", what);
    }
    return Status();
  });
  reader.text("agent_path", m.agent_path);
  reader.text("work_dir", m.work_dir);
  reader.object("environment", [&](const std::string& key, const Json& value) {
    if (!value.is_string()) return invalid_argument("environment '{}' is not a string", key);
    std::string text = value.get<std::string>();
    if (key.empty() || key.size() > kMaxText || key.find('=') != std::string::npos ||
        key.find('\0') != std::string::npos || text.size() > kMaxEnvironmentValue ||
        text.find('\0') != std::string::npos) {
      return invalid_argument("environment has an unusable entry '{}'", key.substr(0, 64));
    }
    m.environment.emplace(key, std::move(text));
    return Status();
  });
  reader.object("rlimits", [&](const std::string& key, const Json& value) {
    if (!value.is_number_integer() || key.size() > 64) {
      return invalid_argument("rlimit '{}' is not a whole number", key.substr(0, 64));
    }
    m.rlimits.emplace(key, value.get<int64_t>());
    return Status();
  });
  reader.integer("umask", m.umask, 0, 0777);
  return finish(reader, std::move(m));
}

Json to_json(const RegisterResponse& m) {
  return {{"elastic", m.elastic},
          {"reason", m.reason},
          {"max_gpus", m.max_gpus},
          {"elastic_mode", m.elastic_mode},
          {"poll_seconds", m.poll_seconds},
          {"progress_seconds", m.progress_seconds},
          {"lease_seconds", m.lease_seconds}};
}

template <>
Result<RegisterResponse> from_json<RegisterResponse>(const Json& json) {
  FieldReader reader(json, "register response");
  RegisterResponse m;
  reader.boolean("elastic", m.elastic);
  reader.text("reason", m.reason, kMaxError);
  reader.integer("max_gpus", m.max_gpus, 0, kMaxGpus);
  reader.text("elastic_mode", m.elastic_mode, 16);
  reader.integer("poll_seconds", m.poll_seconds, 0, 3600);
  reader.integer("progress_seconds", m.progress_seconds, 0, 3600);
  reader.integer("lease_seconds", m.lease_seconds, 0, kMaxSeconds);
  return finish(reader, std::move(m));
}

Json to_json(const ScaleTableRequest& m) { return {{"table", m.table}, {"profile", m.profile}}; }

template <>
Result<ScaleTableRequest> from_json<ScaleTableRequest>(const Json& json) {
  FieldReader reader(json, "scale table");
  ScaleTableRequest m;
  reader.json("table", m.table);
  reader.json("profile", m.profile);
  return finish(reader, std::move(m));
}

Json to_json(const ProgressRequest& m) {
  return {{"step", m.step},
          {"total_steps", m.total_steps},
          {"loss", finite_or_null(m.loss)},
          {"tokens_per_second", finite_or_null(m.tokens_per_second)},
          {"step_seconds", finite_or_null(m.step_seconds)},
          {"gpus", m.gpus},
          {"plan_id", m.plan_id},
          {"state", m.state}};
}

template <>
Result<ProgressRequest> from_json<ProgressRequest>(const Json& json) {
  FieldReader reader(json, "progress");
  ProgressRequest m;
  reader.integer("step", m.step, 0, std::numeric_limits<int64_t>::max());
  reader.integer("total_steps", m.total_steps, 0, std::numeric_limits<int64_t>::max());
  reader.number("loss", m.loss, -kHuge, kHuge, /*allow_nan=*/true);
  reader.number("tokens_per_second", m.tokens_per_second, 0, kHuge, /*allow_nan=*/true);
  reader.number("step_seconds", m.step_seconds, 0, kHuge, /*allow_nan=*/true);
  reader.integer("gpus", m.gpus, 0, kMaxGpus);
  reader.text("plan_id", m.plan_id, 128);
  reader.text("state", m.state, 64);
  return finish(reader, std::move(m));
}

Json to_json(const PollRequest& m) {
  Json json = {{"last_sequence", m.last_sequence}};
  if (m.progress) json["progress"] = to_json(*m.progress);
  return json;
}

template <>
Result<PollRequest> from_json<PollRequest>(const Json& json) {
  FieldReader reader(json, "poll");
  PollRequest m;
  reader.integer("last_sequence", m.last_sequence, 0, std::numeric_limits<int64_t>::max());
  Json progress;
  reader.json("progress", progress);
  if (!progress.is_null()) {
    ASSIGN_OR_RETURN(m.progress, from_json<ProgressRequest>(progress));
  }
  return finish(reader, std::move(m));
}

Json to_json(const Order& m) {
  static constexpr const char* kNames[] = {"none", "grow", "shrink", "release"};
  return {{"kind", kNames[static_cast<int>(m.kind)]},
          {"order_id", m.order_id},
          {"allocations", allocations_to_json(m.allocations)},
          {"plan", m.plan},
          {"timeout_seconds", m.timeout_seconds},
          {"progress_seconds", m.progress_seconds}};
}

template <>
Result<Order> from_json<Order>(const Json& json) {
  FieldReader reader(json, "order");
  Order m;
  reader.choice("kind", m.kind, {"none", "grow", "shrink", "release"});
  reader.text("order_id", m.order_id, 128);
  read_allocations(reader, m.allocations);
  reader.json("plan", m.plan);
  reader.integer("timeout_seconds", m.timeout_seconds, 1, 86400);
  reader.integer("progress_seconds", m.progress_seconds, 0, 3600);
  if (m.kind == OrderKind::kGrow || m.kind == OrderKind::kShrink) {
    reader.require(!m.order_id.empty(), "order_id", "is empty");
    reader.require(!m.allocations.empty(), "allocations", "is empty");
    int64_t gpus = 0;
    for (const Allocation& a : m.allocations) gpus += a.gpus;
    reader.require(gpus > 0, "allocations", "holds no GPU");
    reader.require(m.plan.is_object() || m.plan.is_null(), "plan", "is not an object");
  }
  return finish(reader, std::move(m));
}

Json to_json(const ReportRequest& m) {
  return {{"order_id", m.order_id},
          {"done", m.done},
          {"reason", m.reason},
          {"phases",
           {{"save", m.phases.save},
            {"stop", m.phases.stop},
            {"launch", m.phases.launch},
            {"load", m.phases.load},
            {"first_step", m.phases.first_step},
            {"total", m.phases.total}}},
          {"gpus", m.gpus},
          {"allocations", allocations_to_json(m.allocations)}};
}

template <>
Result<ReportRequest> from_json<ReportRequest>(const Json& json) {
  FieldReader reader(json, "report");
  ReportRequest m;
  reader.text("order_id", m.order_id, 128);
  reader.boolean("done", m.done);
  reader.text("reason", m.reason, kMaxError);
  if (reader.status().ok() && json.contains("phases")) {
    FieldReader phases(json["phases"], "report.phases");
    constexpr double kMax = static_cast<double>(kMaxSeconds);
    phases.number("save", m.phases.save, 0, kMax);
    phases.number("stop", m.phases.stop, 0, kMax);
    phases.number("launch", m.phases.launch, 0, kMax);
    phases.number("load", m.phases.load, 0, kMax);
    phases.number("first_step", m.phases.first_step, 0, kMax);
    phases.number("total", m.phases.total, 0, kMax);
    if (!phases.status().ok()) return phases.status();
  }
  reader.integer("gpus", m.gpus, 0, kMaxGpus);
  read_allocations(reader, m.allocations);
  return finish(reader, std::move(m));
}

Json to_json(const NoticeRequest& m) { return {{"job_id", m.job_id}, {"reason", m.reason}}; }

template <>
Result<NoticeRequest> from_json<NoticeRequest>(const Json& json) {
  FieldReader reader(json, "notice");
  NoticeRequest m;
  reader.integer("job_id", m.job_id, 1, std::numeric_limits<uint32_t>::max());
  reader.text("reason", m.reason);
  reader.require(m.job_id != 0, "job_id", "is missing");
  return finish(reader, std::move(m));
}

Json to_json(const ByeRequest& m) { return {{"exit_code", m.exit_code}, {"reason", m.reason}}; }

template <>
Result<ByeRequest> from_json<ByeRequest>(const Json& json) {
  FieldReader reader(json, "bye");
  ByeRequest m;
  reader.integer("exit_code", m.exit_code, -1, 255);
  reader.text("reason", m.reason, kMaxError);
  return finish(reader, std::move(m));
}

Json to_json(const QueryRequest& m) { return {{"what", m.what}, {"filter", m.filter}}; }

template <>
Result<QueryRequest> from_json<QueryRequest>(const Json& json) {
  FieldReader reader(json, "query");
  QueryRequest m;
  reader.text("what", m.what, 64);
  reader.require(!m.what.empty(), "what", "is empty");
  reader.json("filter", m.filter);
  return finish(reader, std::move(m));
}

Json to_json(const CommandRequest& m) { return {{"action", m.action}, {"job_id", m.job_id}}; }

template <>
Result<CommandRequest> from_json<CommandRequest>(const Json& json) {
  FieldReader reader(json, "command");
  CommandRequest m;
  reader.text("action", m.action, 64);
  reader.require(m.action == "pause" || m.action == "resume", "action",
                 "is neither pause nor resume");
  reader.integer("job_id", m.job_id, 0, std::numeric_limits<uint32_t>::max());
  return finish(reader, std::move(m));
}

}  // namespace flextrain::protocol
