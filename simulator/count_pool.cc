// SPDX-License-Identifier: MIT
// One pool: counts alone.
#include <algorithm>

#include "policy/throughput.h"
#include "policy/victims.h"
#include "simulator/pool.h"

namespace flextrain::simulator {
namespace {

class CountShadow : public Shadow {
 public:
  CountShadow(int available, int need) : available_(available), need_(need) {}
  void add(int /*job*/, int base) override { available_ += base; }
  bool fits() const override { return available_ >= need_; }
  int spare() const override { return available_ - need_; }
  bool admits(int gpus, const std::vector<GiveBack>& /*plan*/) const override {
    return gpus <= spare();
  }
  void take(int /*job*/, int gpus) override { available_ -= gpus; }

 private:
  int available_ = 0;
  const int need_;
};

class CountPool : public Pool {
 public:
  CountPool(int gpus, const policy::Parameters& parameters) : Pool(gpus), parameters_(parameters) {}

  bool fits(int gpus) const override { return gpus <= free_; }
  bool fits_soon(int gpus) const override { return gpus <= free_ + coming_gpus_; }
  bool fits_at_most(int gpus) const override { return gpus <= free_ + coming_gpus_ + expanded_; }

  void start(int /*job*/, int gpus) override { free_ -= gpus; }
  void end(int /*job*/, int base, int held) override {
    free_ += held;
    expanded_ -= held - base;
  }
  void grow(int /*job*/, int gpus) override {
    free_ -= gpus;
    expanded_ += gpus;
  }

  std::vector<GiveBack> plan_reclaim(int gpus,
                                     const std::vector<ExpandedJob>& jobs) const override {
    int need = gpus - free_ - coming_gpus_;
    std::vector<policy::VictimFacts> victims;
    for (const ExpandedJob& job : jobs)
      victims.push_back({static_cast<uint32_t>(job.job), job.held - job.base,
                         policy::is_spared(parameters_, job.remaining, false)});
    std::vector<GiveBack> plan;
    for (const size_t victim : policy::victim_order(parameters_.victims, victims, need)) {
      if (need <= 0) break;
      const ExpandedJob& job = jobs[victim];
      const int most = std::max(job.base, job.held - need);
      const policy::TableEntry* entry = policy::best_within(*job.table, most);
      need -= job.held - entry->gpus;
      plan.push_back({job.job, entry->gpus, {}});
    }
    return plan;
  }

  void shrink(const GiveBack& give, int held, double now, double time) override {
    const int given = held - give.gpus;
    expanded_ -= given;
    if (time > now) {
      coming_.push_back({time, 0, given});
      coming_gpus_ += given;
    } else {
      free_ += given;
    }
  }

  void hand_over(double now) override {
    for (; !coming_.empty() && coming_.front().time <= now; coming_.pop_front()) {
      free_ += coming_.front().gpus;
      coming_gpus_ -= coming_.front().gpus;
    }
  }

  std::unique_ptr<Shadow> shadow(int head_gpus) const override {
    return std::make_unique<CountShadow>(free_ + coming_gpus_ + expanded_, head_gpus);
  }

 private:
  const policy::Parameters& parameters_;
};

}  // namespace

std::unique_ptr<Pool> make_pool(int gpus, const policy::Parameters& parameters) {
  return std::make_unique<CountPool>(gpus, parameters);
}

}  // namespace flextrain::simulator
