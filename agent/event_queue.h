// SPDX-License-Identifier: MIT
// What other threads tell the supervisor. push() from any thread; the rest from one.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "protocol/endpoint_server.h"
#include "protocol/messages.h"

namespace flextrain::agent {

struct Event {
  enum class Kind {
    kRegistered,  // registered, epoch
    kOrder,       // order, epoch, sequence
    kNotice,      // notice, reply: a companion is called back by Slurm
    kLinkLost,    // the lease passed without a word of the controller
  };
  Kind kind = Kind::kOrder;
  protocol::RegisterResponse registered;
  protocol::Order order;
  int64_t epoch = 0, sequence = 0;
  protocol::NoticeRequest notice;
  protocol::ReplyPtr reply;
};

class EventQueue {
 public:
  EventQueue();
  ~EventQueue();
  EventQueue(const EventQueue&) = delete;
  EventQueue& operator=(const EventQueue&) = delete;

  void push(Event event);
  std::vector<Event> take_all();
  int fd() const { return fd_; }  // readable while events wait; -1 if it could not be made

 private:
  std::mutex mutex_;
  std::vector<Event> events_;
  int fd_;
};

}  // namespace flextrain::agent
