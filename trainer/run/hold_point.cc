// SPDX-License-Identifier: MIT
#include "trainer/run/hold_point.h"

#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

#include "trainer/run/step_clock.h"

namespace flextrain::trainer {
namespace {

constexpr double kLongest = 120;  // seconds: a test that died must not hold a job for ever
constexpr std::chrono::milliseconds kLook{50};

bool there(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

}  // namespace

void HoldPoint::wait(const std::string& point) const {
  if (dir_.empty() || point.empty() || !there(dir_ + "/" + point)) return;
  const std::string here = dir_ + "/" + point + ".here";
  std::ofstream(here) << "here\n";
  const Stopwatch watch;
  while (there(dir_ + "/" + point) && watch.seconds() < kLongest) {
    std::this_thread::sleep_for(kLook);
  }
  std::error_code error;
  std::filesystem::remove(here, error);
}

double HoldPoint::step_seconds() const {
  return !dir_.empty() && there(dir_ + "/slow") ? kSlowStep : 0;
}

Status HoldingFileSystem::rename(const std::string& from, const std::string& to) {
  hold_.wait(std::exchange(point_, ""));
  return files_.rename(from, to);
}

}  // namespace flextrain::trainer
