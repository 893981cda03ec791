// SPDX-License-Identifier: MIT
// Stands between the trainer's output and whoever reads it through a pipe (tee, less, ssh). When
// the reader leaves, say at the Ctrl-C that also asks for a checkpoint, mpirun would be ended by
// SIGPIPE in the middle of it; with the relay the output is dropped and the trainer never notices.
// Files and terminals need none and get none.
#pragma once

#include <thread>
#include <vector>

namespace flextrain::agent {

class OutputRelay {
 public:
  // From here on stdout and stderr of this process and of those it starts go through the relay,
  // each where it is a pipe or a socket. Needs SIGPIPE to be ignored. When the system has no more
  // descriptors everything stays as it was.
  OutputRelay();
  // Passes on what is there and puts stdout and stderr back.
  ~OutputRelay();
  OutputRelay(const OutputRelay&) = delete;
  OutputRelay& operator=(const OutputRelay&) = delete;

 private:
  struct Stream {
    int source = -1;       // our end of the pipe
    int sink = -1;         // the real reader
    std::vector<int> fds;  // 1, 2 or both, when they are the same
    bool open = true;      // the source has not ended
  };
  void add(std::vector<int> fds);
  void pump();

  std::vector<Stream> streams_;
  int stop_[2] = {-1, -1};  // closing [1] tells the thread
  std::thread thread_;
};

}  // namespace flextrain::agent
