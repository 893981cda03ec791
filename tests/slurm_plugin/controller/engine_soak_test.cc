// SPDX-License-Identifier: GPL-2.0-or-later
// 10,000 rounds over a cluster where jobs come and go, fail, are taken back and requeued: nothing
// is lost and memory stays flat. Under the address sanitizer the same run looks for leaks.
#include <malloc.h>
#include <unistd.h>

#include <cstdlib>

#include "engine_world.h"

namespace flextrain::slurm_plugin {
namespace {

#ifdef __SANITIZE_ADDRESS__
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

constexpr int kRounds = 10'000, kWarmUp = 3'000, kWindow = 500;
constexpr size_t kFlat = size_t{1} << 20;

size_t allocated() {
  const struct mallinfo2 info = ::mallinfo2();
  return info.uordblks + info.hblkhd;
}

TEST(EngineSoak, TenThousandRoundsAndMemoryStaysFlat) {
  // What is measured is the controller, not a disk's fsync.
  if (::access("/dev/shm", W_OK) == 0) ::setenv("TMPDIR", "/dev/shm", 1);
  set_log_level(LogLevel::kError);
  Rig rig;
  rig.config.policy.arrival_window_seconds = 3600;
  rig.config.policy.require_empty_queue = false;
  rig.steady = true;
  EngineWorld world(rig, {});
  size_t early = 0, late = 0;  // the most in a window
  for (int n = 0; n < kRounds; ++n) {
    world.happen(n);
    rig.step(10);
    if (n % 50 == 49) rig.cluster.purge();
    if (n >= kWarmUp && n < kWarmUp + kWindow) early = std::max(early, allocated());
    if (n >= kRounds - kWindow) late = std::max(late, allocated());
  }
  world.end();
  EXPECT_GE(world.registered(), 200);
  const auto scalings = rig.store->queries().scalings({.limit = 100'000}).value();
  EXPECT_GT(scalings.size(), 500u);
  if (!kSanitized) {
    EXPECT_LT(late, early + kFlat) << "allocated bytes grew from " << early << " to " << late;
  }
  RecordProperty("scalings", static_cast<int>(scalings.size()));
  RecordProperty("bytes_early", static_cast<int>(early));
  RecordProperty("bytes_late", static_cast<int>(late));
}

}  // namespace
}  // namespace flextrain::slurm_plugin
