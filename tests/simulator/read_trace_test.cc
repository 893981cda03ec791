// SPDX-License-Identifier: MIT
#include "simulator/read_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace flextrain::simulator {
namespace {

using ::testing::HasSubstr;

Result<ReadTrace> read(const std::string& text) { return read_trace(text, "t", {}); }

TEST(ReadTrace, SecondsTrace) {
  const auto result = read(
      "id,arrival_s,duration_s,gpus,type,limit_s,u\n7,20.5,3,8,Eval,600,0.25\n"
      "3,10,5,0,Eval,600,0.5\n9,10,5,1,Eval,600,0.5\n");
  ASSERT_TRUE(result.ok()) << result.status().message();
  ASSERT_EQ(result->trace.jobs.size(), 2u);
  EXPECT_EQ(result->left_out, 1) << "a job without GPUs";
  EXPECT_EQ(result->trace.jobs[0].id, 9) << "by arrival";
  EXPECT_EQ(result->trace.jobs[1].arrival, 20.5);
  EXPECT_EQ(result->trace.jobs[1].limit, 600);
  EXPECT_EQ(result->trace.jobs[1].draw, 0.25);
  EXPECT_EQ(result->trace.epoch, 345600) << "a Monday";
}

TEST(ReadTrace, Philly) {
  const auto result = read(
      "timestamp,duration,num_gpus,gpu_time,cluster\r\n"
      "2017-10-09 07:01:55,66.0,1,66.0,11cb48\r\n");
  ASSERT_TRUE(result.ok()) << result.status().message();
  const TraceJob& job = result->trace.jobs.at(0);
  EXPECT_EQ(job.arrival, 7 * 3600 + 1 * 60 + 55) << "from the midnight before";
  EXPECT_EQ(result->trace.epoch, 1507507200) << "2017-10-09";
  EXPECT_EQ(job.limit, 132);
  EXPECT_EQ(result->trace.accounts.at(static_cast<size_t>(job.account)), "11cb48");
}

TEST(ReadTrace, Sacct) {
  const auto result = read(
      "JobID|User|Account|Submit|Start|End|TimelimitRaw|AllocTRES|State\n"
      "100|anna|lab|2026-11-02T08:00:00|2026-11-02T08:10:00|2026-11-02T09:10:00|90|"
      "billing=8,cpu=64,gres/gpu:a100=8,gres/gpu=8,node=1|COMPLETED\n"
      "101_3|bert|lab|2026-11-02T08:05:00|Unknown|Unknown|90||PENDING\n"
      "102|bert|lab|2026-11-02T08:05:00|2026-11-02T08:05:01|2026-11-02T08:06:01|UNLIMITED|"
      "cpu=4,node=1|COMPLETED\n"
      "103|bert|lab|2026-11-02T08:06:00|2026-11-02T08:06:01|2026-11-02T08:08:01|UNLIMITED|"
      "cpu=4,gres/gpu:h100=2,gres/gpu:l40=1|COMPLETED\n");
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->lines, 4);
  EXPECT_EQ(result->left_out, 2) << "one pending, one without GPUs";
  ASSERT_EQ(result->trace.jobs.size(), 2u);
  EXPECT_EQ(result->trace.jobs[0].gpus, 8);
  EXPECT_EQ(result->trace.jobs[0].duration, 3600);
  EXPECT_EQ(result->trace.jobs[0].limit, 5400);
  EXPECT_EQ(result->trace.users.at(static_cast<size_t>(result->trace.jobs[1].user)), "bert");
  EXPECT_EQ(result->trace.accounts.at(static_cast<size_t>(result->trace.jobs[1].account)), "lab");
  EXPECT_EQ(result->trace.jobs[1].gpus, 3);
  EXPECT_EQ(result->trace.jobs[1].limit, 240) << "no limit: twice the duration";
}

TEST(ReadTrace, WrongInputIsNamedByLine) {
  const std::string header = "id,arrival_s,duration_s,gpus,type,limit_s,u\n";
  const auto message = [](const std::string& text) { return read(text).status().message(); };
  EXPECT_THAT(message(""), HasSubstr("t: the file is empty"));
  EXPECT_THAT(message("hello\n"), HasSubstr("t:1: not a trace"));
  EXPECT_THAT(message(header), HasSubstr("no job"));
  EXPECT_THAT(message(header + "1,2,3,4\n"), HasSubstr("t:2: 4 fields"));
  EXPECT_THAT(message(header + "1,2,3,4,E,5,0.5\n1,2,x,4,E,5,0.5\n"),
              HasSubstr("t:3: duration_s='x' is no number"));
  EXPECT_THAT(message(header + "1,-2,3,4,E,5,0.5\n"), HasSubstr("t:2: arrival_s='-2'"));
  EXPECT_THAT(message(header + "1,2,1e15,4,E,5,0.5\n"),
              HasSubstr("t:2: duration_s='1e15' is more than 315360000"));
  EXPECT_THAT(message(header + "1,0,3,4,E,5,0.5\n2,1.7e9,3,4,E,5,0.5\n"),
              HasSubstr("t: its jobs arrive over 54 years, at most 20"));
  EXPECT_THAT(
      message("JobID|Submit|Start|End|TimelimitRaw|AllocTRES\n"
              "7|2026-11-02T08:00:00|2026-11-02T08:10:00|2926-11-02T08:10:00|9|gres/gpu=1\n"),
      HasSubstr("t:2: Submit='2026-11-02T08:00:00'"));
  EXPECT_THAT(message("JobID|User\n1|anna\n"), HasSubstr("t:1: the column submit is missing"));
  EXPECT_THAT(message("timestamp,duration,num_gpus\nyesterday,1,1\n"),
              HasSubstr("t:2: timestamp='yesterday'"));
}

TEST(ReadTrace, ALineWithMoreFieldsThanTheFirstIsRefused) {
  const auto read = read_trace(
      "JobID|JobName|Submit|Start|End|TimelimitRaw|AllocTRES\n"
      "7|a|b|2026-11-02T08:00:00|2026-11-02T08:10:00|2026-11-02T08:20:00|9|gres/gpu=1\n",
      "t", {});
  ASSERT_FALSE(read.ok());
  EXPECT_THAT(read.status().message(), testing::HasSubstr("t:2: 8 fields, the first line names 7"));
}

TEST(ReadTrace, AByteOrderMarkIsNoPartOfTheFirstColumn) {
  const auto read = read_trace(
      "\xef\xbb\xbfid,arrival_s,duration_s,gpus,limit_s,u\r\n1,0,10,8,20,0.5\r\n", "t", {});
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->trace.jobs.size(), 1u);
}

}  // namespace
}  // namespace flextrain::simulator
