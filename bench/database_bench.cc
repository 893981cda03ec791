// SPDX-License-Identifier: GPL-2.0-or-later
// How the controller's database grows: the engine over a fake cluster, with a real database,
// through busy days of 200 elastic jobs, a rigid one every two rounds on average and a look every
// 10 s. Days pass by an injected clock. Usage: database_bench [DAYS [RETENTION_DAYS
// [ELASTIC_JOBS]]]
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <fstream>

#include "tests/slurm_plugin/controller/engine_world.h"

using namespace flextrain;
using namespace flextrain::slurm_plugin;

namespace {

constexpr int kTick = 10, kRoundsPerDay = 86'400 / kTick;

double mebibytes(const std::string& path) {
  struct stat info = {};
  return ::stat(path.c_str(), &info) == 0 ? static_cast<double>(info.st_size) / (1 << 20) : 0;
}

// What this process gave to write(2) so far, to whatever file.
double written_mebibytes() {
  std::ifstream io("/proc/self/io");
  std::string word;
  double bytes = 0;
  while (io >> word)
    if (word == "wchar:") io >> bytes;
  return bytes / (1 << 20);
}

double cpu_seconds() {
  return static_cast<double>(std::clock()) / static_cast<double>(CLOCKS_PER_SEC);
}

}  // namespace

int main(int argc, char** argv) {
  const auto argument = [&](int at, int fallback) {
    return argc > at ? std::max(1, std::atoi(argv[at])) : fallback;
  };
  const int days = argument(1, 3), retention = argument(2, 1), jobs = argument(3, 200);
  // What is measured is bytes and processor time, not a disk's fsync.
  if (::access("/dev/shm", W_OK) == 0) ::setenv("TMPDIR", "/dev/shm", 0);
  set_log_level(LogLevel::kError);
  Rig rig;
  rig.config.policy = {};
  rig.config.retention_days = retention;
  rig.steady = true;
  constexpr int kRounds = 1440;  // of an elastic job: four hours
  WorldOptions options;
  options.nodes = 2 * jobs;
  options.elastic_every = std::max(1, kRounds / jobs);
  options.elastic_rounds = kRounds;
  options.rigid_every = 2;
  options.clock_set = options.deaf = 0;
  EngineWorld world(rig, options);
  fmt::print("{} nodes of 8 GPUs, {} elastic jobs, RetentionDays={}\n", options.nodes, jobs,
             retention);
  fmt::print("{:>3}  {:>10}  {:>8}  {:>9}  {:>9}  {:>8}  {:>14}  {:>12}\n", "day", "database MiB",
             "WAL MiB", "decisions", "refusals", "scalings", "MiB written", "ms a round");
  for (int day = 1; day <= days; ++day) {
    double engine_seconds = 0;
    const double written = written_mebibytes();
    for (int n = (day - 1) * kRoundsPerDay; n < day * kRoundsPerDay; ++n) {
      world.happen(n);
      rig.cluster.advance(kTick);
      const double begin = cpu_seconds();
      rig.engine->tick();
      engine_seconds += cpu_seconds() - begin;
      if (n % 50 == 49) rig.cluster.purge();
    }
    int64_t made = 0;
    const auto decisions = rig.store->queries().decisions({.limit = 10'000'000}).value();
    for (const auto& row : decisions) made += row.repeats;
    fmt::print("{:>3}  {:>12.1f}  {:>7.1f}  {:>9}  {:>9}  {:>8}  {:>11.0f}  {:>10.2f}\n", day,
               mebibytes(rig.database()), mebibytes(rig.database() + "-wal"), decisions.size(),
               made, rig.store->queries().scalings({.limit = 10'000'000}).value().size(),
               written_mebibytes() - written, 1e3 * engine_seconds / kRoundsPerDay);
    std::fflush(stdout);
  }
}
