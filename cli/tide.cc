// SPDX-License-Identifier: MIT
#include "cli/tide.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "cli/values.h"

namespace flextrain::cli {
namespace {

constexpr int kWidth = 48;

std::string repeated(const char* mark, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += mark;
  return text;
}

int columns(double gpus, double total) {
  if (!(total > 0) || !(gpus > 0)) return 0;
  return static_cast<int>(std::lround(kWidth * std::min(gpus, total) / total));
}

}  // namespace

std::string draw_tide(const std::vector<Json>& rows) {
  if (rows.empty()) return "no samples yet: the controller takes one every five minutes\n";
  std::map<std::pair<std::string, std::string>, std::map<int64_t, const Json*>> groups;
  for (const Json& row : rows)
    groups[{text_of(row, "partition"), text_of(row, "gres_type")}][int_of(row, "hour")] = &row;
  std::string out;
  for (const auto& [group, hours] : groups) {
    const auto& [partition, type] = group;
    int64_t samples = 0;
    double total = 0;
    for (const auto& [hour, row] : hours) {
      samples += int_of(*row, "samples");
      total = std::max(total, double_of(*row, "total"));
    }
    out += fmt::format("{}{}{}{}, {:.0f} GPUs, {} samples\n", out.empty() ? "" : "\n",
                       partition.empty() ? "whole cluster" : "partition " + printable(partition),
                       type.empty() ? "" : ", ", printable(type), total, samples);
    out += fmt::format("hour  {:<{}}  idle  (least, most)  expanded\n",
                       "█ idle  ▒ expanded  · in use", kWidth);
    for (const auto& [hour, row] : hours) {
      const double idle = double_of(*row, "idle"), expanded = double_of(*row, "expanded");
      const int full = columns(idle, total);
      const int grown = std::min(columns(expanded, total), kWidth - full);
      out += fmt::format("  {:02}  {}{}{}  {:6.1f}  ({}, {})  {:.1f}\n", hour, repeated("█", full),
                         repeated("▒", grown), repeated("·", kWidth - full - grown), idle,
                         int_of(*row, "least_idle"), int_of(*row, "most_idle"), expanded);
    }
  }
  return out;
}

}  // namespace flextrain::cli
