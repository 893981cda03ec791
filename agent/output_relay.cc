// SPDX-License-Identifier: MIT
#include "agent/output_relay.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string_view>
#include <utility>

namespace flextrain::agent {
namespace {

constexpr int kQuietMilliseconds = 100;  // of processes that outlive the trainer with our pipe

// False when the reader is gone.
bool pass_on(int sink, std::string_view data) {
  while (!data.empty()) {
    const ssize_t written = ::write(sink, data.data(), data.size());
    if (written >= 0) {
      data.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EAGAIN) {  // somebody made the pipe non-blocking
      pollfd wait{sink, POLLOUT, 0};
      ::poll(&wait, 1, -1);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

void close_fd(int& fd) {
  if (fd >= 0) ::close(std::exchange(fd, -1));
}

}  // namespace

OutputRelay::OutputRelay() {
  struct stat out = {}, err = {};
  const auto piped = [](int fd, struct stat& info) {
    return ::fstat(fd, &info) == 0 && (S_ISFIFO(info.st_mode) || S_ISSOCK(info.st_mode));
  };
  const bool out_piped = piped(STDOUT_FILENO, out), err_piped = piped(STDERR_FILENO, err);
  if ((!out_piped && !err_piped) || ::pipe2(stop_, O_CLOEXEC) != 0) return;
  if (out_piped && err_piped && out.st_dev == err.st_dev && out.st_ino == err.st_ino) {
    add({STDOUT_FILENO, STDERR_FILENO});  // one pipe keeps their order
  } else {
    if (out_piped) add({STDOUT_FILENO});
    if (err_piped) add({STDERR_FILENO});
  }
  if (!streams_.empty()) thread_ = std::thread([this] { pump(); });
}

OutputRelay::~OutputRelay() {
  std::fflush(stdout);
  std::fflush(stderr);
  for (const Stream& stream : streams_) {
    for (const int fd : stream.fds) ::dup2(stream.sink, fd);
  }
  close_fd(stop_[1]);
  if (thread_.joinable()) thread_.join();
  close_fd(stop_[0]);
  for (Stream& stream : streams_) {
    close_fd(stream.source);
    close_fd(stream.sink);
  }
}

void OutputRelay::add(std::vector<int> fds) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return;
  Stream stream;
  stream.source = ends[0];
  stream.sink = ::fcntl(fds.front(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (stream.sink < 0) {
    close_fd(ends[0]);
    close_fd(ends[1]);
    return;
  }
  for (const int fd : fds) ::dup2(ends[1], fd);
  close_fd(ends[1]);
  stream.fds = std::move(fds);
  streams_.push_back(std::move(stream));
}

void OutputRelay::pump() {
  bool stopping = false;
  for (;;) {
    std::vector<pollfd> fds;
    for (const Stream& stream : streams_) {
      fds.push_back({stream.open ? stream.source : -1, POLLIN, 0});
    }
    fds.push_back({stopping ? -1 : stop_[0], POLLIN, 0});
    const int ready = ::poll(fds.data(), fds.size(), stopping ? kQuietMilliseconds : -1);
    if (ready == 0 && stopping) return;
    if (ready < 0 && errno != EINTR) return;
    if (ready <= 0) continue;
    if (fds.back().revents != 0) stopping = true;
    bool any_open = false;
    for (size_t i = 0; i < streams_.size(); ++i) {
      Stream& stream = streams_[i];
      if (stream.open && fds[i].revents != 0) {
        char buffer[65536];
        const ssize_t got = ::read(stream.source, buffer, sizeof buffer);
        // A reader that has gone is tried again each time: it costs one failing call.
        if (got > 0) {
          (void)pass_on(stream.sink, {buffer, static_cast<size_t>(got)});
        } else if (got == 0) {
          stream.open = false;
        }
      }
      any_open = any_open || stream.open;
    }
    if (!any_open) return;
  }
}

}  // namespace flextrain::agent
