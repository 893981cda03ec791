// SPDX-License-Identifier: MIT
// What a person sees while training: one line that renews itself on a terminal, plain lines now and
// then in a log. Rank 0 alone.
#pragma once

#include <cstdio>
#include <string>

#include "trainer/run/step_clock.h"

namespace flextrain::trainer {

struct ProgressFigures {
  int64_t step = 0, total_steps = 0;
  double loss = 0, tokens_per_second = 0, step_seconds = 0;
  int gpus = 0;
};

// "step 120/300  loss 4.3210  12345 tokens/s  ETA 1:02:03  GPUs 4".
std::string progress_text(const ProgressFigures& figures);
std::string duration_text(double seconds);  // "0:07", "12:34", "1:02:03"

class ProgressLine {
 public:
  explicit ProgressLine(std::FILE* out);
  // `always` prints in a log too, where steps are otherwise at least 10 s apart.
  void show(const ProgressFigures& figures, bool always);
  // Ends the line on a terminal, so that a message can follow.
  void finish();

 private:
  std::FILE* out_;
  bool terminal_;
  bool open_ = false, shown_ = false;
  Stopwatch since_last_;
};

}  // namespace flextrain::trainer
