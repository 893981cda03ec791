// SPDX-License-Identifier: MIT
// After warm-up a step allocates nothing: counts operator new in this program during a step.
// oneDNN's own calls (an argument table per product, inside the library) are told apart by their
// return address.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

#include "tests/trainer/engine/test_world.h"
#include "tests/trainer/engine/toy_run.h"

namespace {
std::atomic<bool> counting{false};
std::atomic<int64_t> own_allocations{0}, library_allocations{0};

void count(const void* caller) {
  if (!counting.exchange(false)) return;  // dladdr must not count itself
  Dl_info info{};
  const bool library = dladdr(caller, &info) != 0 && info.dli_fname != nullptr &&
                       std::strstr(info.dli_fname, "libdnnl") != nullptr;
  ++(library ? library_allocations : own_allocations);
  counting = true;
}
}  // namespace

__attribute__((noinline)) void* operator new(size_t size) {
  count(__builtin_return_address(0));
  if (void* p = std::malloc(size)) return p;
  throw std::bad_alloc();
}
__attribute__((noinline)) void operator delete(void* p) noexcept { std::free(p); }
__attribute__((noinline)) void operator delete(void* p, size_t) noexcept { std::free(p); }

namespace flextrain::trainer {
namespace {

TEST(Allocation, NoneInAStepAfterWarmUp) {
  for (planner::Numerics numerics : {planner::Numerics::kExact, planner::Numerics::kFp32}) {
    TrainConfig config = toy_config(3, 4);
    config.numerics = numerics;
    planner::RegularLayout layout;
    layout.num_transformer_layers = 3;
    layout.global_batch = 4;
    layout.numerics = numerics;
    const planner::Plan plan = planner::make_regular_plan(layout).value();
    const auto engine = make_engine(config, plan, test_world()).value();
    ASSERT_TRUE(engine->initialize().ok());
    const ToyText text(config.model.vocab, false);
    for (int64_t step = 0; step < 2; ++step)
      ASSERT_TRUE(engine->train_step(step, 4 * step, text, false, true).ok());
    own_allocations = 0;
    counting = true;
    const auto result = engine->train_step(2, 8, text, false, true);
    counting = false;
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(own_allocations, 0);
    // The counter itself works.
    counting = true;
    ::operator delete(::operator new(4));
    counting = false;
    EXPECT_EQ(own_allocations, 1);
  }
}

}  // namespace
}  // namespace flextrain::trainer
