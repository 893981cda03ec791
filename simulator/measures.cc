// SPDX-License-Identifier: MIT
#include "simulator/measures.h"

#include <algorithm>
#include <map>

namespace flextrain::simulator {
namespace {

struct Sums {
  int64_t jobs = 0, slower = 0, late = 0, longer = 0;
  double jct = 0, base_jct = 0, run = 0, duration = 0;
  double ratio(double part, double whole) const { return whole > 0 ? part / whole : 1; }
};

struct Queue {
  double mean = 0, p95 = 0, over_60 = 0;
};
Queue queue_of(std::vector<double> seconds) {
  Queue queue;
  if (seconds.empty()) return queue;
  for (const double wait : seconds) {
    queue.mean += wait;
    queue.over_60 += wait > 60 ? 1 : 0;
  }
  const auto count = static_cast<double>(seconds.size());
  queue.mean /= count;
  queue.over_60 /= count;
  const auto at = static_cast<ptrdiff_t>(0.95 * (count - 1));
  std::nth_element(seconds.begin(), seconds.begin() + at, seconds.end());
  queue.p95 = seconds[static_cast<size_t>(at)];
  return queue;
}

}  // namespace

Measures measure(const Trace& trace, const ReplayOptions& options, const ReplayResult& run,
                 const ReplayResult& base, double warm_up) {
  Measures m;
  Sums all;
  std::map<int, Sums> classes;
  std::vector<double> waits, base_waits;
  int64_t switches = 0, wide_jobs = 0;
  for (size_t i = 0; i < trace.jobs.size(); ++i) {
    const TraceJob& job = trace.jobs[i];
    const JobOutcome &now = run.jobs[i], &before = base.jobs[i];
    if (job.arrival < warm_up || job.gpus > options.gpus) continue;
    if (!now.elastic) {
      waits.push_back(now.start - job.arrival);
      base_waits.push_back(before.start - job.arrival);
      if (options.wide_gpus > 0 && job.gpus >= options.wide_gpus) {
        ++wide_jobs;
        m.wide_queue_mean += now.start - job.arrival;
      }
      continue;
    }
    switches += now.switches;
    for (Sums* sums : {&all, &classes[job.gpus]}) {
      ++sums->jobs;
      sums->jct += now.end - job.arrival;
      sums->base_jct += before.end - job.arrival;
      sums->run += now.end - now.start;
      sums->duration += job.duration;
      const bool slower = now.end > before.end + 1e-6;
      sums->slower += slower ? 1 : 0;
      sums->late += now.end > before.end + 60 ? 1 : 0;
      sums->longer += slower && now.end - now.start > before.end - before.start + 1e-6 ? 1 : 0;
    }
  }
  const auto share = [](const Sums& sums, int64_t part) {
    return sums.jobs > 0 ? static_cast<double>(part) / static_cast<double>(sums.jobs) : 0;
  };
  if (wide_jobs > 0) m.wide_queue_mean /= static_cast<double>(wide_jobs);
  m.elastic_jobs = all.jobs;
  m.rigid_jobs = static_cast<int64_t>(waits.size());
  m.njct = all.ratio(all.jct, all.base_jct);
  m.nrun = all.ratio(all.run, all.duration);
  m.slower = share(all, all.slower);
  m.late = share(all, all.late);
  m.longer = share(all, all.longer);
  const Queue queue = queue_of(std::move(waits)), before = queue_of(std::move(base_waits));
  m.queue_mean = queue.mean;
  m.queue_p95 = queue.p95;
  m.queue_over_60 = queue.over_60;
  m.base_queue_mean = before.mean;
  m.base_queue_p95 = before.p95;
  m.base_queue_over_60 = before.over_60;
  m.rq = all.ratio(queue.mean, before.mean);
  m.w60 = all.ratio(queue.over_60, before.over_60);
  const double span = trace.jobs.empty() ? 0 : trace.jobs.back().arrival;
  m.utilisation = span > 0 ? run.busy_gpu_seconds / (options.gpus * span) : 0;
  const double idle = options.gpus * span - run.busy_gpu_seconds;
  m.stranded = idle > 0 ? run.stranded_gpu_seconds / idle : 0;
  m.fragmented_wait_hours = run.fragmented_wait_seconds / 3600;
  m.completion_mean = all.jobs > 0 ? all.jct / static_cast<double>(all.jobs) : 0;
  m.switches_per_job =
      all.jobs > 0 ? static_cast<double>(switches) / static_cast<double>(all.jobs) : 0;
  m.pause_gpu_hours = run.pause_gpu_seconds / 3600;
  m.growths = run.growths;
  m.shrinks = run.shrinks;
  for (const auto& [gpus, sums] : classes)
    m.classes.push_back({gpus, sums.jobs, sums.ratio(sums.jct, sums.base_jct),
                         sums.ratio(sums.run, sums.duration), share(sums, sums.slower)});
  return m;
}

}  // namespace flextrain::simulator
