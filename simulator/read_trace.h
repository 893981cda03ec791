// SPDX-License-Identifier: MIT
// Job traces from text. Three kinds, told apart by their first line:
//   id,arrival_s,duration_s,gpus,type,limit_s,u    times in seconds from a Monday, 00:00; may have
//                                                  the columns user and account
//   timestamp,duration,num_gpus,gpu_time,cluster   the Philly trace; "YYYY-MM-DD HH:MM:SS"; its
//                                                  virtual clusters are taken for accounts
//   JobID|…                                        `sacct -P` (kSacctCommand)
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "simulator/trace.h"

namespace flextrain::simulator {

inline constexpr std::string_view kSacctCommand =
    "sacct -a -X -P -S now-30days -E now "
    "-o JobID,User,Account,Submit,Start,End,TimelimitRaw,AllocTRES,State";

struct ReadOptions {
  uint64_t seed = 1;        // of the draws where the trace has none
  double limit_factor = 2;  // run limit over duration where the trace has no limit
};

struct ReadTrace {
  Trace trace;
  int64_t lines = 0;     // without the header
  int64_t left_out = 0;  // jobs without GPUs, without a start or an end
};

// `name` is for messages: kInvalidArgument "name:line: …".
Result<ReadTrace> read_trace(std::string_view text, const std::string& name,
                             const ReadOptions& options);

// New draws for every job: another choice of who is elastic.
void redraw(Trace& trace, uint64_t seed);

// GPUs in a TRES text such as "billing=8,cpu=64,gres/gpu=8,gres/gpu:a100=8"; 0 when it has none.
int gpus_in_tres(std::string_view text);

}  // namespace flextrain::simulator
