// SPDX-License-Identifier: MIT
// A child process in a session of its own, so that whatever it leaves behind can be found. Not
// thread-safe: one thread owns it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace flextrain::agent {

struct ProcessSpec {
  std::vector<std::string> argv;         // argv[0] is searched in PATH
  std::vector<std::string> environment;  // "NAME=value", all of it
  std::string output_file;               // both outputs go there, "" = to ours
};

class Process {
 public:
  // The child gets default signal handling, an empty mask, /dev/null as input, our output unless a
  // file is named, and SIGTERM when the thread that starts it ends (more than once where other
  // threads are left). kNotFound: no such program.
  static Result<Process> start(const ProcessSpec& spec);

  Process(Process&& other) noexcept : pid_(other.pid_) { other.pid_ = -1; }
  Process& operator=(Process&& other) noexcept;
  ~Process();  // kills what still runs

  pid_t pid() const { return pid_; }
  // Exit code as a shell gives it (128 + signal), nullopt while it runs. Does not block. After a
  // code that is not `orderly` nothing of its session is left: a launcher that was killed could not
  // end its ranks, and a stopped one does not notice.
  std::optional<int> poll_exit(std::initializer_list<int> orderly = {0});
  void signal(int number);        // to the process
  void signal_group(int number);  // to its whole process group

 private:
  explicit Process(pid_t pid) : pid_(pid) {}
  pid_t pid_ = -1;
};

// The file that `name` means: itself when it holds a '/', else the first of PATH. kNotFound.
Result<std::string> find_program(const std::string& name);

// What execve(2) takes; points into `words`.
std::vector<char*> exec_arguments(const std::vector<std::string>& words);

// SIGKILL to every process of a session but this one. Its id cannot be another's while one of it
// lives.
void kill_session(pid_t session);

// A wait(2) status as a shell tells it: the exit code, or 128 + signal.
int shell_code(int status);

// What is left of a session whose leader has ended. A look at it takes no time.
class Stragglers {
 public:
  explicit Stragglers(pid_t session);  // those that live now
  bool any();                          // forgets those that have ended
  void kill() const;                   // SIGKILL

 private:
  struct Member {
    pid_t pid;
    uint64_t start;  // /proc/PID/stat: its id may be another's by now
  };
  std::vector<Member> members_;
};

// Runs a program and gives its standard output's first line. kDeadlineExceeded, kInternal with the
// exit code. Blocks up to `seconds`.
Result<std::string> first_output_line(const std::vector<std::string>& argv, int seconds);

// The environment of this process as "NAME=value".
std::vector<std::string> own_environment();
// Whether a variable describes a Slurm job or step (and so must not leak into another one).
bool is_slurm_variable(std::string_view name);

}  // namespace flextrain::agent
