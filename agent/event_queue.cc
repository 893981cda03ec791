// SPDX-License-Identifier: MIT
#include "agent/event_queue.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <utility>

namespace flextrain::agent {

EventQueue::EventQueue() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

EventQueue::~EventQueue() {
  if (fd_ >= 0) ::close(fd_);
}

void EventQueue::push(Event event) {
  {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
  }
  const uint64_t one = 1;
  (void)!::write(fd_, &one, sizeof one);
}

std::vector<Event> EventQueue::take_all() {
  uint64_t count = 0;
  (void)!::read(fd_, &count, sizeof count);
  const std::lock_guard lock(mutex_);
  return std::exchange(events_, {});
}

}  // namespace flextrain::agent
