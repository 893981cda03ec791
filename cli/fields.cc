// SPDX-License-Identifier: MIT
#include "cli/fields.h"

#include <cmath>

#include "cli/time_spec.h"
#include "cli/values.h"

namespace flextrain::cli {
namespace {

Field text(std::string name, int width, const std::string& key) {
  return {std::move(name), width, [key](const Json& row) { return text_of(row, key); }};
}
// A whole number; `none` (often 0) prints as blank.
Field integer(std::string name, int width, const std::string& key, int64_t none = INT64_MIN) {
  return {std::move(name), width, [key, none](const Json& row) {
            const int64_t value = int_of(row, key);
            return value == none || !member(row, key).is_number() ? std::string()
                                                                  : std::to_string(value);
          }};
}
Field number(std::string name, int width, const std::string& key, int digits) {
  return {std::move(name), width,
          [key, digits](const Json& row) { return number_text(double_of(row, key), digits); }};
}
Field seconds(std::string name, int width, const std::string& key) {  // 0 = not measured
  return {std::move(name), width, [key](const Json& row) {
            const double value = double_of(row, key);
            return value > 0 ? fmt::format("{:.2f}", value) : std::string();
          }};
}
Field time(std::string name, const std::string& key) {
  return {std::move(name), 19, [key](const Json& row) { return format_time(int_of(row, key)); }};
}
Field flag(std::string name, int width, const std::string& key, const std::string& mark) {
  return {std::move(name), width,
          [key, mark](const Json& row) { return bool_of(row, key) ? mark : std::string(); }};
}

// Of a scale entry's key, which is the entry's member "shape".
const Json& shape_of(const Json& row) {
  const Json& shape = member(row, "shape");
  return shape.is_object() ? shape : row;
}

// "n1:4,n3:8*": GPUs per node, '*' for a companion's.
std::string hosts(const Json& row) {
  std::string out;
  const Json& list = member(row, "hosts");
  if (!list.is_array()) return out;
  const int64_t base = int_of(row, "job_id");
  for (const Json& host : list)
    out += fmt::format("{}{}:{}{}", out.empty() ? "" : ",", text_of(host, "node"),
                       int_of(host, "gpus"), int_of(host, "job_id") == base ? "" : "*");
  return out;
}

std::string step(const Json& row) {
  const int64_t done = int_of(row, "step"), total = int_of(row, "total_steps");
  if (total <= 0) return done > 0 ? std::to_string(done) : std::string();
  return fmt::format("{}/{}", done, total);
}

std::string left(const Json& row) {
  const double value = double_of(row, "remaining_seconds");
  return std::isfinite(value) ? format_duration(value) : std::string();
}

// Until the end, or until the newest sample: rows of an ended job do not grow older.
std::string elapsed(const Json& row) {
  const int64_t start = int_of(row, "start");
  const int64_t end = int_of(row, "end") > 0 ? int_of(row, "end") : int_of(row, "progress_time");
  return start > 0 && end >= start ? format_duration(static_cast<double>(end - start))
                                   : std::string();
}

// What holds a job back matters more than how it came into its state.
std::string reason(const Json& row) {
  const std::string held = text_of(row, "hold_reason");
  return held.empty() ? text_of(row, "state_reason") : held;
}

std::string speedup(const Json& row) {
  const double base = double_of(row, "base_tokens_per_second");
  const double value = double_of(row, "tokens_per_second");
  return base > 0 && value > 0 ? fmt::format("{:.2f}x", value / base) : std::string();
}

}  // namespace

const Listing& jobs_listing() {
  static const Listing listing{
      "jobs",
      {integer("JobID", 8, "job_id"),
       text("User", 9, "user"),
       text("JobName", 12, "name"),
       text("Partition", 10, "partition"),
       text("Mode", 6, "mode"),
       text("State", 12, "state"),
       text("Hold", 11, "hold"),
       {"Reason", -30, reason},
       integer("Base", 5, "base_gpus"),
       integer("GPUs", 5, "held_gpus"),
       integer("Max", 5, "max_gpus"),
       {"Hosts", -24, hosts},
       {"Step", 13, step},
       number("Loss", 8, "loss", 5),
       number("Tokens/s", 9, "tokens_per_second", 4),
       {"Left", 10, left},
       {"Elapsed", 10, elapsed},
       integer("Grows", 6, "grows"),
       integer("Shrinks", 7, "shrinks"),
       integer("Failed", 6, "failures"),
       seconds("GrowCost", 8, "grow_overhead_seconds"),
       seconds("ShrinkCost", 10, "shrink_overhead_seconds"),
       time("Submit", "submit"),
       time("Start", "start"),
       time("End", "end"),
       integer("Restarts", 8, "restart_count"),
       text("Plan", -16, "plan_id"),
       text("Fingerprint", -20, "fingerprint"),
       text("Numerics", 8, "numerics"),
       text("Agent", 8, "agent_version"),
       time("Updated", "progress_time"),
       text("Cluster", 10, "cluster")},
      "JobID,User,JobName,State,Base,GPUs,Max,Step,Loss,Tokens/s,Left,Grows,Shrinks,Reason"};
  return listing;
}

const Listing& decisions_listing() {
  static const Listing listing{
      "decisions",
      {integer("ID", 6, "id"), integer("JobID", 8, "job_id", 0), text("User", 9, "user"),
       integer("ForJob", 8, "for_job", 0), text("Kind", 6, "kind"), text("Rule", 16, "rule"),
       text("Reason", -60, "reason"), integer("From", 5, "from_gpus", 0),
       integer("To", 5, "to_gpus", 0), time("First", "first_time"), time("Last", "last_time"),
       integer("Times", 6, "repeats"), integer("Snapshot", 8, "snapshot_id", 0),
       text("Outcome", 11, "outcome")},
      "ID,Last,JobID,Kind,Rule,From,To,Times,Outcome,Reason"};
  return listing;
}

const Listing& table_listing() {
  static const Listing listing{
      "table",
      {integer("JobID", 8, "job_id"),
       flag("Now", 3, "current", "*"),
       flag("Base", 4, "base", "*"),
       {"GPUs", 5, [](const Json& row) { return std::to_string(int_of(shape_of(row), "gpus")); }},
       {"GPUType", 10, [](const Json& row) { return text_of(shape_of(row), "device_type"); }},
       {"StepTime", 9,
        [](const Json& row) {
          const double value = double_of(row, "step_seconds");
          return value > 0 ? number_text(value, 4) : std::string();
        }},
       number("Tokens/s", 10, "tokens_per_second", 4),
       {"Speedup", 7, speedup},
       {"Memory", 9,
        [](const Json& row) { return bytes_text(double_of(row, "peak_memory_bytes")); }},
       text("Source", 8, "source"),
       {"Kept", 4,
        [](const Json& row) { return std::string(bool_of(row, "kept") ? "yes" : "no"); }},
       text("Dropped", -40, "drop_rule"),
       text("Plan", -28, "summary")},
      "Now,Base,GPUs,StepTime,Tokens/s,Speedup,Memory,Source,Kept,Plan,Dropped"};
  return listing;
}

const Listing& companions_listing() {
  static const Listing listing{
      "companions",
      {integer("JobID", 8, "job_id"), integer("BaseJob", 8, "base_job_id"), text("User", 9, "user"),
       text("Node", 12, "node"), integer("GPUs", 5, "gpus"), text("State", 11, "state"),
       time("Start", "start"), time("LeaseEnd", "lease_end"), time("End", "end"),
       text("Fingerprint", -20, "fingerprint"), text("Intent", -12, "intent_id"),
       text("Reason", -30, "end_reason")},
      "JobID,BaseJob,User,Node,GPUs,State,Start,LeaseEnd,Reason"};
  return listing;
}

const Listing& idle_listing() {
  static const Listing listing{
      "idle",
      {text("Node", 12, "node"), integer("GPUs", 5, "gpus"), integer("Alloc", 5, "allocated"),
       integer("Expanded", 8, "expanded"), integer("Idle", 5, "idle"), text("State", 14, "state"),
       text("Why", -40, "why")},
      "Node,GPUs,Alloc,Expanded,Idle,State,Why"};
  return listing;
}

}  // namespace flextrain::cli
