// SPDX-License-Identifier: MIT
#include "trainer/engine/profile_gather.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <tuple>

namespace flextrain::trainer {
namespace {

using Part = StepProfiler::Part;
using planner::LayerProfile;
using planner::StepProfile;

// One rank's report as numbers. Ranks run the same program.
class Packer {
 public:
  void add(double value) {
    const auto* bytes = reinterpret_cast<const char*>(&value);
    text_.append(bytes, sizeof value);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};
class Unpacker {
 public:
  explicit Unpacker(std::string_view text) : text_(text) {}
  double next() {
    double value = 0;
    if (text_.size() < sizeof value) return value;
    std::memcpy(&value, text_.data(), sizeof value);
    text_.remove_prefix(sizeof value);
    return value;
  }
  int64_t next_count() { return static_cast<int64_t>(next()); }

 private:
  std::string_view text_;
};

constexpr int64_t LayerProfile::*kSizes[] = {
    &LayerProfile::static_bytes,    &LayerProfile::activation_bytes,
    &LayerProfile::optimizer_bytes, &LayerProfile::gradient_bytes,
    &LayerProfile::selective_bytes, &LayerProfile::working_bytes,
    &LayerProfile::kept_bytes,      &LayerProfile::gradient_scratch_bytes};

std::string pack(const StepProfiler::Measured& measured, const StepProfile& mine) {
  Packer to;
  for (size_t i = 0; i < measured.layers.size(); ++i) {
    for (const double value : measured.layers[i].seconds) to.add(value);
    for (const double value : measured.layers[i].count) to.add(value);
    for (const auto size : kSizes) to.add(static_cast<double>(mine.layers[i].*size));
  }
  for (const double value : measured.control) to.add(value);
  for (const double value : {measured.reduce, measured.optimizer, measured.step}) to.add(value);
  to.add(static_cast<double>(measured.messages.size()));
  for (const StepProfiler::Message& message : measured.messages) {
    to.add(message.from), to.add(message.to), to.add(message.tag), to.add(message.seconds);
  }
  return to.take();
}

struct RankReport {
  StepProfiler::Measured measured;
  std::vector<LayerProfile> layers;
};

RankReport unpack(std::string_view text, size_t layers) {
  Unpacker from(text);
  RankReport report;
  report.measured.layers.resize(layers);
  report.layers.resize(layers);
  for (size_t i = 0; i < layers; ++i) {
    for (double& value : report.measured.layers[i].seconds) value = from.next();
    for (double& value : report.measured.layers[i].count) value = from.next();
    for (const auto size : kSizes) report.layers[i].*size = from.next_count();
  }
  for (double& value : report.measured.control) value = from.next();
  report.measured.reduce = from.next();
  report.measured.optimizer = from.next();
  report.measured.step = from.next();
  report.measured.messages.resize(static_cast<size_t>(from.next_count()));
  for (StepProfiler::Message& message : report.measured.messages) {
    message.from = static_cast<int>(from.next());
    message.to = static_cast<int>(from.next());
    message.tag = static_cast<int>(from.next());
    message.seconds = from.next();
  }
  return report;
}

double mean(const StepProfiler::LayerTimes& times, Part part) {
  const auto at = static_cast<size_t>(part);
  return times.count[at] > 0 ? times.seconds[at] / times.count[at] : 0;
}

double work(const StepProfiler::LayerTimes& times) {
  return mean(times, Part::kForward) + mean(times, Part::kBackward) + mean(times, Part::kWgrad);
}

double median(std::vector<double>& values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// How a rank's devices compare, by the layers that have the size of layer 1 (the blocks). A rank
// with few of them tells nothing: a slow layer looks like a slow device.
std::vector<double> slowness_of(const std::vector<RankReport>& reports,
                                const std::vector<LayerProfile>& layers) {
  constexpr size_t kFewest = 3;
  std::vector<std::vector<double>> times(reports.size());
  std::vector<double> all;
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    for (size_t i = 1; i < layers.size(); ++i) {
      const double seconds = work(reports[rank].measured.layers[i]);
      if (layers[i].static_bytes == layers[1].static_bytes && seconds > 0) {
        times[rank].push_back(seconds);
      }
    }
    all.insert(all.end(), times[rank].begin(), times[rank].end());
  }
  const double typical = median(all);
  std::vector<double> slowness(reports.size(), 1.0);
  if (typical <= 0) return slowness;
  double sum = 0;
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    if (times[rank].size() >= kFewest) {
      slowness[rank] = std::clamp(median(times[rank]) / typical, 1e-2, 1e2);
    }
    sum += slowness[rank];
  }
  for (double& value : slowness) value *= static_cast<double>(slowness.size()) / sum;
  return slowness;
}

void average_layers(const std::vector<RankReport>& reports, StepProfile& profile) {
  for (const RankReport& report : reports) {
    for (size_t i = 0; i < profile.layers.size(); ++i) {
      for (const auto size : kSizes) profile.layers[i].*size += report.layers[i].*size;
    }
  }
  if (profile.layers.size() > 1) profile.rank_slowness = slowness_of(reports, profile.layers);
  for (size_t i = 0; i < profile.layers.size(); ++i) {
    StepProfiler::LayerTimes sums;
    for (size_t rank = 0; rank < reports.size(); ++rank) {
      const StepProfiler::LayerTimes& times = reports[rank].measured.layers[i];
      const double slowness = profile.rank_slowness.empty() ? 1 : profile.rank_slowness[rank];
      for (size_t part = 0; part < StepProfiler::kParts; ++part) {
        sums.seconds[part] += times.seconds[part] / slowness;
        sums.count[part] += times.count[part];
      }
    }
    LayerProfile& layer = profile.layers[i];
    layer.forward = mean(sums, Part::kForward);
    layer.wgrad = mean(sums, Part::kWgrad);
    layer.backward = mean(sums, Part::kBackward) + layer.wgrad;
    layer.selective_seconds = std::min(mean(sums, Part::kSelective), layer.forward);
  }
}

// Nodes of k ranks each, in order: k. 0 when the ranks are spread in another way.
int ranks_per_node(const std::vector<std::string>& nodes) {
  size_t width = 1;
  while (width < nodes.size() && nodes[width] == nodes[0]) ++width;
  for (size_t rank = 1; rank < nodes.size(); ++rank) {
    const bool same = nodes[rank] == nodes[rank - 1];
    if (same != (rank % width != 0)) return 0;
  }
  return static_cast<int>(width);
}

// A quarter of them are shorter: the longer ones waited for a core as well.
double typical_seconds(std::vector<double>& seconds) {
  if (seconds.empty()) return 0;
  const auto quarter = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 4);
  std::nth_element(seconds.begin(), quarter, seconds.end());
  return *quarter;
}

void match_messages(const std::vector<RankReport>& reports, StepProfile& profile) {
  // The sender's view first; the receiver's messages of the same name come in the same order.
  std::map<std::tuple<int, int, int>, std::vector<double>> sent;
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    for (const StepProfiler::Message& message : reports[rank].measured.messages) {
      if (message.from == static_cast<int>(rank)) {
        sent[{message.from, message.to, message.tag}].push_back(message.seconds);
      }
    }
  }
  std::map<std::tuple<int, int, int>, size_t> taken;
  std::vector<double> near, far;
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    for (const StepProfiler::Message& message : reports[rank].measured.messages) {
      if (message.to != static_cast<int>(rank)) continue;
      const std::tuple name{message.from, message.to, message.tag};
      const auto found = sent.find(name);
      const size_t index = taken[name]++;
      if (found == sent.end() || index >= found->second.size()) continue;
      const bool crosses = profile.ranks_per_node > 0 && message.from / profile.ranks_per_node !=
                                                             message.to / profile.ranks_per_node;
      (crosses ? far : near).push_back(std::min(message.seconds, found->second[index]));
    }
  }
  profile.transfer_seconds = typical_seconds(near);
  profile.far_transfer_seconds = typical_seconds(far);
}

StepProfile combine(const std::vector<std::string>& texts, const std::vector<std::string>& nodes,
                    StepProfile profile, int steps) {
  std::vector<RankReport> reports;
  reports.reserve(texts.size());
  for (const std::string& text : texts) reports.push_back(unpack(text, profile.layers.size()));
  profile.layers.assign(profile.layers.size(), LayerProfile{});
  profile.ranks_per_node = ranks_per_node(nodes);
  average_layers(reports, profile);
  match_messages(reports, profile);
  double slowest_reduce = 0, quickest_reduce = std::numeric_limits<double>::infinity();
  std::array<double, 2> control;
  control.fill(std::numeric_limits<double>::infinity());
  for (const RankReport& report : reports) {
    for (size_t i = 0; i < control.size(); ++i) {
      control[i] = std::min(control[i], report.measured.control[i]);
    }
    slowest_reduce = std::max(slowest_reduce, report.measured.reduce / steps);
    quickest_reduce = std::min(quickest_reduce, report.measured.reduce / steps);
    profile.optimizer_seconds =
        std::max(profile.optimizer_seconds, report.measured.optimizer / steps);
    profile.step_seconds = std::max(profile.step_seconds, report.measured.step / steps);
  }
  // Without data parallelism at most a tied embedding is summed, by two ranks.
  profile.reduce_seconds = profile.data_parallel > 1 ? slowest_reduce : quickest_reduce;
  profile.control_seconds = control[0] + control[1];
  profile.steps = steps;
  return profile;
}

}  // namespace

Result<StepProfile> gather_profile(const StepProfiler::Measured& measured, StepProfile mine,
                                   Communicator& world) {
  if (measured.steps == 0)
    return failed_precondition("no step was profiled yet; call train_step with profile = true");
  ASSIGN_OR_RETURN(const std::vector<std::string> texts,
                   world.gather_bytes(pack(measured, mine), 0));
  ASSIGN_OR_RETURN(const std::vector<std::string> nodes, world.gather_bytes(world.node_name(), 0));
  std::string text;
  if (world.rank() == 0) {
    text = planner::profile_to_json(combine(texts, nodes, std::move(mine), measured.steps)).dump();
  }
  RETURN_IF_ERROR(world.broadcast_bytes(text, 0));
  ASSIGN_OR_RETURN(const Json json, parse_json(text, "profile"));
  return planner::profile_from_json(json);
}

}  // namespace flextrain::trainer
