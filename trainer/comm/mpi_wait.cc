// SPDX-License-Identifier: MIT
#include "trainer/comm/mpi_wait.h"

#include <sched.h>

#include <algorithm>
#include <ctime>

namespace flextrain::trainer {
namespace {
constexpr int kYields = 64;              // a peer that runs on another core answers within these
constexpr long kFirstPause = 10'000;     // ns
constexpr long kLongestPause = 400'000;  // ns; bounds the delay a wait adds
}  // namespace

Status mpi_status(int code, const char* what) {
  if (code == MPI_SUCCESS) return {};
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  return unavailable("{} failed: {}; another rank may have died, see its log", what,
                     std::string_view(text, static_cast<size_t>(length)));
}

Status mpi_wait(MPI_Request* request, const char* what) {
  long pause = kFirstPause;
  for (int poll = 0;; ++poll) {
    int done = 0;
    RETURN_IF_ERROR(mpi_status(MPI_Test(request, &done, MPI_STATUS_IGNORE), what));
    if (done) return {};
    if (poll < kYields) {
      sched_yield();
      continue;
    }
    const timespec wait{0, pause};
    nanosleep(&wait, nullptr);
    pause = std::min(pause * 2, kLongestPause);
  }
}

}  // namespace flextrain::trainer
