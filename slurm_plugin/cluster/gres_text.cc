// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm_plugin/cluster/gres_text.h"

#include <algorithm>
#include <cctype>
#include <limits>
#include <optional>

#include "base/text.h"

namespace flextrain::slurm_plugin {
namespace {

constexpr int64_t kLargestCount = std::numeric_limits<int>::max();
constexpr int64_t kMaxIndices = 4096;  // of one node's devices

// Splits at ',' and ';' outside parentheses: "gpu:2(IDX:0,3),nic:1" has two parts.
std::vector<std::string_view> parts_of(std::string_view text) {
  std::vector<std::string_view> parts;
  size_t start = 0;
  int depth = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    const char c = i < text.size() ? text[i] : ',';
    if (c == '(') ++depth;
    if (c == ')') --depth;
    if (i == text.size() || (depth == 0 && (c == ',' || c == ';'))) {
      const std::string_view part = trim(text.substr(start, i - start));
      if (!part.empty()) parts.push_back(part);
      start = i + 1;
    }
  }
  return parts;
}

// "8", "4K": a count with Slurm's binary suffixes. Not "2g.10gb", which is a type.
std::optional<int64_t> count_of(std::string_view text) {
  size_t digits = 0;
  while (digits < text.size() && std::isdigit(static_cast<unsigned char>(text[digits]))) ++digits;
  if (digits == 0 || digits > 12) return std::nullopt;
  int64_t count = *parse_int(text.substr(0, digits));
  const std::string_view suffix = text.substr(digits);
  if (suffix.size() > 1) return std::nullopt;
  if (!suffix.empty()) {
    const size_t power = std::string_view("kmg").find(
        static_cast<char>(std::tolower(static_cast<unsigned char>(suffix[0]))));
    if (power == std::string_view::npos) return std::nullopt;
    for (size_t i = 0; i <= power && count <= kLargestCount; ++i) count *= 1024;
  }
  return std::min(count, kLargestCount);
}

std::vector<int> indices_of(std::string_view note) {
  std::vector<int> indices;
  if (!note.starts_with("IDX:")) return indices;
  for (const std::string& range : split(note.substr(4), ',')) {
    const size_t dash = range.find('-');
    const Result<int64_t> first = parse_int(range.substr(0, dash));
    const Result<int64_t> last =
        dash == std::string::npos ? first : parse_int(range.substr(dash + 1));
    if (!first.ok() || !last.ok() || *first < 0 || *last >= kMaxIndices) continue;  // "N/A"
    if (static_cast<int64_t>(indices.size()) >= kMaxIndices) break;
    for (int64_t i = *first; i <= *last; ++i) indices.push_back(static_cast<int>(i));
  }
  return indices;
}

}  // namespace

std::vector<GresEntry> parse_gres(std::string_view text) {
  std::vector<GresEntry> entries;
  for (std::string_view part : parts_of(text)) {
    GresEntry entry;
    if (const size_t open = part.find('('); open != std::string_view::npos) {
      std::string_view note = part.substr(open + 1);
      entry.indices = indices_of(note.substr(0, note.find(')')));
      part = part.substr(0, open);
    }
    if (part.starts_with("gres:") || part.starts_with("gres/")) part.remove_prefix(5);
    std::optional<int64_t> count;
    if (const size_t equals = part.find('='); equals != std::string_view::npos) {
      count = count_of(part.substr(equals + 1));
      if (!count) continue;
      part = part.substr(0, equals);
    }
    std::vector<std::string> fields = split(part, ':');
    if (fields.empty() || fields[0].empty()) continue;
    entry.name = fields[0];
    fields.erase(fields.begin());
    if (!count && !fields.empty()) {
      count = count_of(fields.back());
      if (count) fields.pop_back();
    }
    if (fields.size() > 1) continue;
    if (!fields.empty()) entry.type = fields[0];
    // "gpu" and "gpu:a100" ask for one; "gpu(IDX:0-1)" says how many by its indices.
    const size_t indices = entry.indices.size();
    entry.count = count.value_or(indices > 0 ? static_cast<int64_t>(indices) : 1);
    entries.push_back(std::move(entry));
  }
  return entries;
}

GpuCount gpus_in(std::string_view text) {
  int64_t typed = 0, untyped = 0;
  std::optional<std::string> type;
  bool one_type = true;
  for (const GresEntry& entry : parse_gres(text)) {
    if (entry.name != "gpu") continue;
    if (entry.type.empty()) {
      untyped += entry.count;
      continue;
    }
    typed += entry.count;
    if (type && *type != entry.type) one_type = false;
    type = entry.type;
  }
  // "gres/gpu=16,gres/gpu:a100=16": one and the same.
  const bool totals = text.find('=') != std::string_view::npos;
  const int64_t count = totals ? std::max(typed, untyped) : typed + untyped;
  GpuCount gpus;
  gpus.count = static_cast<int>(std::min(count, kLargestCount));
  if (type && one_type && (untyped == 0 || totals)) gpus.type = *type;
  return gpus;
}

GpuCount requested_gpus(const GpuRequest& request) {
  const int64_t nodes = std::max(1, request.nodes);
  const auto times = [](std::string_view text, int64_t factor) {
    GpuCount gpus = gpus_in(text);
    gpus.count =
        static_cast<int>(std::min(gpus.count * std::max<int64_t>(1, factor), kLargestCount));
    return gpus;
  };
  if (GpuCount gpus = times(request.per_job, 1); gpus.count > 0) return gpus;
  if (GpuCount gpus = times(request.per_node, nodes); gpus.count > 0) return gpus;
  const int64_t tasks =
      request.tasks > 0 ? request.tasks : nodes * std::max(1, request.tasks_per_node);
  if (GpuCount gpus = times(request.per_task, tasks); gpus.count > 0) return gpus;
  return times(request.per_socket, nodes * std::max(1, request.sockets_per_node));
}

}  // namespace flextrain::slurm_plugin
