// SPDX-License-Identifier: GPL-2.0-or-later
// A strict reader of OpenMetrics 1.0 text, as far as counters, gauges, summaries and infos go.
#pragma once

#include <cmath>
#include <cstdlib>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <string>

#include "base/text.h"

namespace flextrain::slurm_plugin {

struct MetricFamily {
  std::string type, unit, help;
  std::map<std::string, double> samples;  // "name{labels}" as written → value
};

struct OpenMetrics {
  std::map<std::string, MetricFamily> families;
  std::string error;  // the first thing that is wrong, "" = valid

  double value(const std::string& sample) const {
    for (const auto& [name, family] : families) {
      if (const auto at = family.samples.find(sample); at != family.samples.end()) {
        return at->second;
      }
    }
    return std::nan("");
  }
};

class OpenMetricsReader {
 public:
  static OpenMetrics read(const std::string& text) {
    OpenMetricsReader reader;
    reader.read_all(text);
    return reader.result_;
  }

 private:
  void read_all(const std::string& text) {
    static const std::string kEnd = "# EOF\n";
    if (!text.ends_with(kEnd)) return fail("does not end with # EOF");
    if (text.find('\r') != std::string::npos) return fail("has a carriage return");
    const std::string body = text.substr(0, text.size() - kEnd.size());
    if (!body.empty() && body.back() != '\n') return fail("# EOF does not begin a line");
    std::vector<std::string> lines = split(body, '\n');
    if (!lines.empty() && lines.back().empty()) lines.pop_back();
    for (const std::string& line : lines) {
      if (line.starts_with("#")) {
        read_metadata(line);
      } else {
        read_sample(line);
      }
      if (!result_.error.empty()) return;
    }
    for (const auto& [name, family] : result_.families) check(name, family);
  }

  void read_metadata(const std::string& line) {
    static const std::regex kLine(R"(# (TYPE|UNIT|HELP) ([a-zA-Z_:][a-zA-Z0-9_:]*) (.+))");
    std::smatch part;
    if (!std::regex_match(line, part, kLine)) return fail("no metadata: " + line);
    const std::string kind = part[1], name = part[2], text = part[3];
    if (name != current_) {
      if (result_.families.contains(name)) return fail("interleaved: " + line);
      current_ = name;
    }
    MetricFamily& family = result_.families[name];
    if (!family.samples.empty()) return fail("metadata after samples: " + line);
    std::string& field = kind == "TYPE" ? family.type : kind == "UNIT" ? family.unit : family.help;
    if (!field.empty()) return fail("twice: " + line);
    field = text;
  }

  void read_sample(const std::string& line) {
    static const std::string kLabel = R"([a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\n"])*")";
    static const std::regex kLine("([a-zA-Z_:][a-zA-Z0-9_:]*)(\\{(" + kLabel + "(?:," + kLabel +
                                  ")*)\\})? ([+-]?[0-9]+(?:\\.[0-9]*)?(?:e[+-]?[0-9]+)?)");
    std::smatch part;
    if (!std::regex_match(line, part, kLine)) return fail("no sample: " + line);
    const std::string name = part[1], labels = part[2];
    const auto family = result_.families.find(current_);
    if (family == result_.families.end() || !name.starts_with(current_)) {
      return fail("of no family: " + line);
    }
    const std::string suffix = name.substr(current_.size());
    if (!allowed(family->second.type, suffix, labels)) {
      return fail("not in a " + family->second.type + ": " + line);
    }
    static const std::regex kName("([a-zA-Z_][a-zA-Z0-9_]*)=\"");
    std::set<std::string> names;
    for (std::sregex_iterator at(labels.begin(), labels.end(), kName), end; at != end; ++at) {
      if (!names.insert((*at)[1]).second) return fail("a label twice: " + line);
    }
    const double value = std::strtod(part[4].str().c_str(), nullptr);
    if (family->second.type != "gauge" && value < 0) return fail("negative: " + line);
    if (!family->second.samples.emplace(name + labels, value).second) return fail("twice: " + line);
  }

  static bool allowed(const std::string& type, const std::string& suffix,
                      const std::string& labels) {
    const bool quantile = labels.find("quantile=\"") != std::string::npos;
    if (type == "counter") return suffix == "_total" && !quantile;
    if (type == "gauge") return suffix.empty() && !quantile;
    if (type == "info") return suffix == "_info";
    if (type != "summary") return false;
    return suffix.empty() ? quantile : (suffix == "_sum" || suffix == "_count") && !quantile;
  }

  void check(const std::string& name, const MetricFamily& family) {
    if (family.type.empty() || family.help.empty()) fail(name + " lacks TYPE or HELP");
    if (family.samples.empty()) fail(name + " has no sample");
    if (!family.unit.empty() && !name.ends_with("_" + family.unit)) {
      fail(name + " does not end in its unit " + family.unit);
    }
    for (const char* reserved : {"_total", "_created", "_count", "_sum", "_bucket", "_info"}) {
      if (name.ends_with(reserved)) fail(name + " has a reserved suffix");
    }
    for (const auto& [sample, value] : family.samples) {
      if (family.type == "info" && (value != 1 || !family.unit.empty())) fail(sample);
    }
  }

  void fail(const std::string& why) {
    if (result_.error.empty()) result_.error = why;
  }

  OpenMetrics result_;
  std::string current_;  // family
};

}  // namespace flextrain::slurm_plugin
