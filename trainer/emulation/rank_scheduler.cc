// SPDX-License-Identifier: MIT
#include "trainer/emulation/rank_scheduler.h"

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace flextrain::trainer {
namespace {

// Address space, not memory: pages come when touched. The engine's frames are small.
#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kStackBytes = size_t{1} << 20;  // redzones
#else
constexpr size_t kStackBytes = size_t{256} << 10;
#endif

}  // namespace

struct RankScheduler::Fiber {
  ucontext_t context{};
  void* memory = MAP_FAILED;  // a guard page, then the stack
  size_t bytes = 0;
  void* fake_stack = nullptr;  // the address sanitizer's

  ~Fiber() {
    if (memory != MAP_FAILED) munmap(memory, bytes);
  }
  Status allocate() {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    bytes = kStackBytes + page;
    memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, page, PROT_NONE) != 0) {
      return resource_exhausted("no memory for the stack of an emulated rank: {}",
                                std::strerror(errno));
    }
    return {};
  }
  // To `to`, whose stack is `stack` (null: the thread's own, `bytes` long).
  static void switch_to(Fiber& from, Fiber& to, [[maybe_unused]] bool from_ends) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(from_ends ? nullptr : &from.fake_stack, to.memory_begin(),
                                   to.stack_bytes());
#endif
    swapcontext(&from.context, &to.context);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);
#endif
  }
#if defined(__SANITIZE_ADDRESS__)
  const void* own_begin = nullptr;  // of the thread's own stack
  size_t own_bytes = 0;
  const void* memory_begin() const { return memory == MAP_FAILED ? own_begin : memory; }
  size_t stack_bytes() const { return memory == MAP_FAILED ? own_bytes : bytes; }
#endif
};

RankScheduler::RankScheduler() = default;
RankScheduler::~RankScheduler() = default;

// makecontext() passes ints: the scheduler's address comes in halves.
void RankScheduler::enter(unsigned high, unsigned low) {
  auto* self =
      reinterpret_cast<RankScheduler*>((static_cast<uintptr_t>(high) << 32) | uintptr_t{low});
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &self->main_->own_begin, &self->main_->own_bytes);
#endif
  Rank& rank = self->ranks_[static_cast<size_t>(self->current_)];
  rank.result = (*self->body_)(self->current_);
  rank.state = State::kEnded;
  Fiber::switch_to(*rank.fiber, *self->main_, true);
}

Status RankScheduler::run(int ranks, const std::function<Status(int)>& body) {
  body_ = &body;
  failed_ = Status();
  turns_ = {};
  ranks_.clear();
  ranks_.resize(static_cast<size_t>(ranks));
  main_ = std::make_unique<Fiber>();
  const auto self = reinterpret_cast<uintptr_t>(this);
  for (int r = 0; r < ranks; ++r) {
    Rank& rank = ranks_[static_cast<size_t>(r)];
    rank.fiber = std::make_unique<Fiber>();
    RETURN_IF_ERROR(rank.fiber->allocate());
    ucontext_t& context = rank.fiber->context;
    getcontext(&context);
    context.uc_stack.ss_sp = rank.fiber->memory;
    context.uc_stack.ss_size = rank.fiber->bytes;
    context.uc_link = nullptr;
    makecontext(&context, reinterpret_cast<void (*)()>(&RankScheduler::enter), 2,
                static_cast<unsigned>(self >> 32), static_cast<unsigned>(self));
    queue_up(r);
  }
  int ended = 0;
  while (ended < ranks) {
    if (turns_.empty()) {  // all that are left wait
      if (failed_.ok()) {
        failed_ = failed_precondition(
            "emulated ranks wait for each other for ever: {}; their Plan's transfers or "
            "collectives "
            "do not match",
            blocked_ranks());
      }
      for (int r = 0; r < ranks; ++r) {
        if (ranks_[static_cast<size_t>(r)].state == State::kBlocked) queue_up(r);
      }
    }
    current_ = turns_.top().rank;
    turns_.pop();
    Rank& rank = ranks_[static_cast<size_t>(current_)];
    rank.state = State::kRunning;
    Fiber::switch_to(*main_, *rank.fiber, false);
    if (rank.state != State::kEnded) continue;
    ++ended;
    rank.fiber.reset();
    if (!rank.result.ok() && failed_.ok()) {
      failed_ = rank.result.with_context(fmt::format("rank {}", current_));
    }
  }
  current_ = -1;
  return failed_;
}

void RankScheduler::queue_up(int rank) {
  Rank& at = ranks_[static_cast<size_t>(rank)];
  at.state = State::kRunnable;
  turns_.push({at.clock, rank});
}

void RankScheduler::leave_rank(State state) {
  Rank& rank = ranks_[static_cast<size_t>(current_)];
  rank.state = state;
  if (state == State::kRunnable) queue_up(current_);
  Fiber::switch_to(*rank.fiber, *main_, false);
}

void RankScheduler::advance_to(double time) {
  double& clock = ranks_[static_cast<size_t>(current_)].clock;
  clock = std::max(clock, time);
}

Status RankScheduler::wait_for_turn() {
  if (!turns_.empty() && turns_.top().time < now()) leave_rank(State::kRunnable);
  return failure();
}

Status RankScheduler::block() {
  RETURN_IF_ERROR(failure());
  leave_rank(State::kBlocked);
  return failure();
}

void RankScheduler::wake(int rank, double time) {
  Rank& other = ranks_[static_cast<size_t>(rank)];
  if (other.state != State::kBlocked) return;
  other.clock = std::max(other.clock, time);
  queue_up(rank);
}

Status RankScheduler::failure() const {
  return failed_.ok() ? Status() : unavailable("another emulated rank has failed");
}

std::string RankScheduler::blocked_ranks() const {
  constexpr int kNamed = 8;
  std::string names;
  int blocked = 0;
  for (size_t r = 0; r < ranks_.size(); ++r) {
    if (ranks_[r].state != State::kBlocked || ++blocked > kNamed) continue;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", r);
  }
  if (blocked > kNamed) names += fmt::format(" and {} more", blocked - kNamed);
  return names;
}

}  // namespace flextrain::trainer
