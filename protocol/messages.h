// SPDX-License-Identifier: MIT
// protocol: the messages between controller, agents, trainer and CLI; their encoding and
// authentication. Plans pass through as opaque JSON. Knows neither Slurm's API nor MPI.
//
// Wire: HTTP/1.1, POST /v1/<type>. A body, both ways, is one credential of the auth interface
// (protocol/auth.h; munge) around the JSON of an Envelope. Bodies over 256 KiB are chunked.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace flextrain::protocol {

inline constexpr int kProtocolVersion = 1;
inline constexpr int kOldestProtocolVersion = 1;  // the controller serves agents one release old
inline constexpr int kDefaultPort = 6822;

// A job is the same job only when all four agree (ids are reused, requeues restart).
struct JobIdentity {
  std::string cluster;
  uint32_t job_id = 0;
  int64_t submit_time = 0;  // unix seconds
  int restart_count = 0;
  bool operator==(const JobIdentity&) const = default;
};

struct Envelope {
  int version = kProtocolVersion;
  std::string type;              // a MessageType name
  std::string nonce;             // set by the client, repeated by the response
  int64_t controller_epoch = 0;  // grows with every controller start; 0 in a first request
  int64_t sequence = 0;          // response to poll: sequence of the order it carries
  JobIdentity job;               // absent (job_id 0) in CLI queries
  std::string error;             // responses: "" or why it was refused
  Json body;
};

// Types of requests. Agent: register, scale_table, progress, poll, report, bye. CLI: query,
// command.
inline constexpr std::string_view kRegister = "register";
inline constexpr std::string_view kScaleTable = "scale_table";
inline constexpr std::string_view kProgress = "progress";
inline constexpr std::string_view kPoll = "poll";
inline constexpr std::string_view kReport = "report";
inline constexpr std::string_view kBye = "bye";
inline constexpr std::string_view kQuery = "query";
inline constexpr std::string_view kCommand = "command";
// Companion → base agent, at the address in the environment variable kNoticeAddressVariable: Slurm
// wants this companion's GPUs back. Answered once the trainer has left it.
inline constexpr std::string_view kNotice = "notice";
inline constexpr const char* kNoticeAddressVariable = "FLEXTRAIN_NOTICE_ADDRESS";

enum class AgentRole { kBase, kCompanion };

// One job's GPUs on one host, as a launcher needs them.
struct Allocation {
  uint32_t job_id = 0;
  std::string host;
  int gpus = 0;
  std::string address;  // "" = resolve the host name
  bool operator==(const Allocation&) const = default;
};

struct RegisterRequest {
  AgentRole role = AgentRole::kBase;
  uint32_t base_job_id = 0;             // companions: whom they serve
  std::string intent_id;                // companions: the growth they were submitted for
  std::vector<Allocation> allocations;  // the hosts and GPUs of this agent's own job
  std::string fingerprint;              // numerics fingerprint, "" = not known yet
  std::string numerics = "exact";       // "exact" or "fp32": whether fingerprints must agree
  std::string agent_version;
  // Base only: what a companion's batch script needs.
  std::vector<std::string> fingerprint_command;
  std::string agent_path, work_dir;
  std::map<std::string, std::string> environment;  // without SLURM_*
  std::map<std::string, int64_t> rlimits;          // soft limits, names as in getrlimit(2)
  int umask = 0022;
};
struct RegisterResponse {
  bool elastic = false;  // false: supervise only; `reason` says why
  std::string reason;
  int max_gpus = 0;
  std::string elastic_mode;  // "pp", "dp+pp"
  int poll_seconds = 25;     // the longest that a poll stays open
  int progress_seconds = 0;  // Order::progress_seconds, until the first poll is answered
  int lease_seconds = 0;     // companions: how long to hold on without a word of the controller
};

struct ScaleTableRequest {
  Json table;    // planner ScaleTable, opaque here
  Json profile;  // planner StepProfile
};

// States of a trainer that steps.
inline constexpr std::string_view kTrainerRunning = "running";
inline constexpr std::string_view kTrainerSaving = "saving";  // a checkpoint nobody asked for

struct ProgressRequest {
  int64_t step = 0, total_steps = 0;
  double loss = 0, tokens_per_second = 0, step_seconds = 0;
  int gpus = 0;
  std::string plan_id;
  std::string state;  // the two above, "starting", "switching", "stopping" or "restarting"
};

struct PollRequest {
  int64_t last_sequence = 0;  // highest order sequence executed or in work
  // The newest numbers not told yet, of a state that was: they ride along for nothing.
  std::optional<ProgressRequest> progress;
};

enum class OrderKind { kNone, kGrow, kShrink, kRelease };
struct Order {  // response to poll; kNone when the long poll ended without one
  OrderKind kind = OrderKind::kNone;
  std::string order_id;                 // intent id
  std::vector<Allocation> allocations;  // everything the trainer may use afterwards, base first
  Json plan;                            // for exactly the GPUs of `allocations`
  int timeout_seconds = 300;            // roll back when not confirmed by then
  // With every answer to a poll: progress messages of the same state are to be so far apart at
  // least, 0 = as the agent likes. The more jobs there are, the more.
  int progress_seconds = 0;
};

struct PhaseSeconds {  // measured by the agent; 0 where a phase did not occur
  double save = 0, stop = 0, launch = 0, load = 0, first_step = 0, total = 0;
};
// A shrink is reported twice under its order_id: done as soon as the trainer has left the
// companions (total 0: cancel them now), and again with all phases at the first step of the smaller
// layout. A report with order_id "" is no answer to an order: the agent itself moved the trainer (a
// companion died or was called back by Slurm); `allocations` then says what is in use.
struct ReportRequest {
  std::string order_id;
  bool done = false;    // false: rolled back to the last good size
  std::string reason;   // when not done
  PhaseSeconds phases;  // total = last step of the old layout → first step of the new one
  int gpus = 0;         // held by the trainer now
  std::vector<Allocation> allocations;  // used by the trainer now
};

struct NoticeRequest {
  uint32_t job_id = 0;  // the companion
  std::string reason;   // "signal USR1"
};

struct ByeRequest {
  int exit_code = 0;
  std::string reason;
};

struct QueryRequest {
  std::string what;  // "jobs", "decisions", "explain", "table", "companions", "idle", "diag"
  Json filter;       // {"job": [..], "start": unix s, "end": unix s, "id": n, …}
};                   // the response body is {"rows": […]} or what docs/protocol.md says for it

// A person's word about growth; the response body is {"message": one sentence}. Its caller is
// audited in the store.
struct CommandRequest {
  std::string action;   // "pause", "resume"
  uint32_t job_id = 0;  // 0 = every job (root and SlurmUser)
};

// Encoding; every from_json checks types and bounds and never throws.
Json to_json(const Envelope& m);
Json to_json(const RegisterRequest& m);
Json to_json(const RegisterResponse& m);
Json to_json(const ScaleTableRequest& m);
Json to_json(const ProgressRequest& m);
Json to_json(const PollRequest& m);
Json to_json(const Order& m);
Json to_json(const ReportRequest& m);
Json to_json(const NoticeRequest& m);
Json to_json(const ByeRequest& m);
Json to_json(const QueryRequest& m);
Json to_json(const CommandRequest& m);
template <typename Message>
Result<Message> from_json(const Json& json);  // specialised for each of the above
template <>
Result<Envelope> from_json<Envelope>(const Json& json);
template <>
Result<RegisterRequest> from_json<RegisterRequest>(const Json& json);
template <>
Result<RegisterResponse> from_json<RegisterResponse>(const Json& json);
template <>
Result<ScaleTableRequest> from_json<ScaleTableRequest>(const Json& json);
template <>
Result<ProgressRequest> from_json<ProgressRequest>(const Json& json);
template <>
Result<PollRequest> from_json<PollRequest>(const Json& json);
template <>
Result<Order> from_json<Order>(const Json& json);
template <>
Result<ReportRequest> from_json<ReportRequest>(const Json& json);
template <>
Result<NoticeRequest> from_json<NoticeRequest>(const Json& json);
template <>
Result<ByeRequest> from_json<ByeRequest>(const Json& json);
template <>
Result<QueryRequest> from_json<QueryRequest>(const Json& json);
template <>
Result<CommandRequest> from_json<CommandRequest>(const Json& json);

}  // namespace flextrain::protocol
