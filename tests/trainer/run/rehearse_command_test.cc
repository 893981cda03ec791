// SPDX-License-Identifier: MIT
// flextrain-trainer rehearse (and plan, without a run) as a program: what cannot work is one clear
// line and exit code 78, and what it writes is whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "base/file.h"
#include "base/json.h"
#include "tests/trainer/run/child_process.h"
#include "tests/trainer/temp_folder.h"

namespace flextrain::trainer {
namespace {

using ::testing::HasSubstr;

class RehearseCommand : public TempFolder {
 protected:
  static constexpr double kDeadline = 120;  // seconds, for any one run

  void SetUp() override {
    // No data: nothing is computed. One GPU does not hold it, two do.
    write("job.toml",
          "[model]\nlayers = 4\nhidden = 512\nheads = 8\nkv_heads = 8\nffn = 1408\nvocab = 8192\n"
          "sequence = 512\n[training]\nglobal_batch = 8\n");
    write("cluster.toml",
          "[device]\nmemory_gib = 0.4\n[network]\ngpus_per_node = 4\n"
          "adapters_per_node = 4\n");
  }
  void write(const std::string& name, const std::string& text) const {
    ASSERT_TRUE(write_file_atomically(path(name), text).ok());
  }
  int run(const std::string& arguments) {
    ChildProcess child(path(""), std::string(TRAINER) + " rehearse job.toml " + arguments);
    const int code = child.wait(kDeadline);
    output_ = child.output();
    return code;
  }
  std::string output_;
};

TEST_F(RehearseCommand, RefusesWhatCannotWorkInOneLine) {
  write("empty.json", "");
  write("deep.json", std::string(100000, '['));
  write("garbage.toml", "\x01\xff garbage");
  write("nan.toml", "[device]\nmemory_gib = nan\n");
  write("zero.toml", "[network]\ngpus_per_node = 0\n");
  write("huge.toml", std::string((1 << 20) + 1, '#'));
  const struct {
    const char* arguments;
    const char* message;
  } cases[] = {
      // Sizes.
      {"--cluster cluster.toml --gpus 4 --try 9",
       "--try 9: 9 GPUs are no data x pipeline parallel with data parallel from 1 to 8"},
      {"--cluster cluster.toml --gpus 4 --try 9 --set parallel.no_ops=false",
       "No-Ops, which would fill more stages, are forbidden"},
      {"--cluster cluster.toml --gpus 4 --try 2,1", "--try 1: memory: the fullest rank needs"},
      {"--cluster cluster.toml --gpus 1", "out of device memory"},
      {"--cluster cluster.toml --gpus 7", "7 ranks cannot be used"},
      {"--cluster cluster.toml --gpus 6 --set parallel.pipeline_parallel=6 "
       "--set parallel.no_ops=false",
       "parallel.pipeline_parallel (6) must not be above model.layers (4): No-Ops"},
      {"--cluster cluster.toml --gpus 4 --set parallel.virtual_stages=2 "
       "--set parallel.no_ops=false",
       "8 chunks for 6 layers, and No-Ops are forbidden"},
      {"--cluster cluster.toml --gpus 4 --set parallel.virtual_stages=1000", "must be 1 ... 512"},
      {"--cluster cluster.toml --gpus 4 --set training.global_batch=0", "training.global_batch"},
      {"--cluster cluster.toml --gpus 4 --set training.global_batch=16777216",
       "16777216 micro-batches, must be 1 ... 1048576"},
      // Files.
      {"--cluster none.toml --gpus 4", "none.toml"},
      {"--cluster . --gpus 4", "Is a directory"},
      {"--cluster garbage.toml --gpus 4", "garbage.toml"},
      {"--cluster nan.toml --gpus 4", "device.memory_gib must be a number above 0"},
      {"--cluster zero.toml --gpus 4", "network.gpus_per_node must be an integer from 1"},
      {"--cluster huge.toml --gpus 4", "larger than the limit of 1048576 bytes"},
      {"--cluster cluster.toml --plan empty.json", "empty.json"},
      {"--cluster cluster.toml --plan deep.json", "deep.json"},
  };
  for (const auto& one : cases) {
    EXPECT_EQ(run(one.arguments), 78) << one.arguments << ": " << output_;
    EXPECT_THAT(output_, HasSubstr(one.message)) << one.arguments;
    EXPECT_EQ(std::count(output_.begin(), output_.end(), '\n'), 1) << output_;
  }
  // Beyond what the command line takes: the parser's line and a hint at --help.
  for (const char* arguments : {"--gpus 0", "--gpus 1000000000", "--gpus 4 --steps 0",
                                "--gpus 4 --try 0", "--gpus 4 --try x", ""}) {
    EXPECT_EQ(run(std::string("--cluster cluster.toml ") + arguments), 78) << arguments;
    EXPECT_EQ(std::count(output_.begin(), output_.end(), '\n'), 2) << output_;
  }
}

TEST_F(RehearseCommand, RunsStagesThatOnlyPassOn) {
  EXPECT_EQ(run("--cluster cluster.toml --gpus 6 --set parallel.pipeline_parallel=6 --try 2"), 0)
      << output_;
  EXPECT_THAT(output_, HasSubstr("PP 6 x DP 1, 1f1b, 6 GPUs"));
  EXPECT_THAT(output_, HasSubstr("dropped: memory: the fullest rank needs"));
}

// Two of another seed, killed at any moment or not, into one folder: its files are whole, and two
// that ended leave those of one of them.
TEST_F(RehearseCommand, TheFilesOfTwoAtOnceAreWholeAndOfOneRun) {
  for (const char* seed : {"1", "2"}) {
    write(std::string("seed") + seed + ".toml",
          std::string("[jitter]\nkernel = 0.1\nseed = ") + seed + "\n");
  }
  const auto start = [&](const std::string& seed, const std::string& folder) {
    return std::make_unique<ChildProcess>(
        path("run" + seed), std::string(TRAINER) +
                                " rehearse ../job.toml --gpus 4 --cluster ../seed" + seed +
                                ".toml -o " + folder);
  };
  const auto bytes = [&](const std::string& file) { return read_file(path(file)).value_or(""); };
  for (const char* folder : {"run1", "run2"}) ASSERT_TRUE(make_directories(path(folder)).ok());
  for (const std::string seed : {"1", "2"}) {
    EXPECT_EQ(start(seed, "../alone" + seed)->wait(kDeadline), 0);
  }
  ASSERT_NE(bytes("alone1/profile.json"), bytes("alone2/profile.json"));
  const auto is_of = [&](const std::string& seed) {
    for (const char* file : {"/profile.json", "/scale_table.json", "/trace.json"}) {
      if (bytes("both" + std::string(file)) != bytes("alone" + seed + file)) return false;
    }
    return true;
  };
  for (int round = 0; round < 5; ++round) {
    const auto one = start("1", "../both"), two = start("2", "../both");
    EXPECT_EQ(one->wait(kDeadline), 0) << one->output();
    EXPECT_EQ(two->wait(kDeadline), 0) << two->output();
    EXPECT_TRUE(is_of("1") || is_of("2"));
  }
  for (int round = 0; round < 20; ++round) {
    const auto one = start("1", "../both");
    wait_until(0.003 * round, [&] { return one->ended(); });
    one->signal(SIGKILL);
    one->wait(kDeadline);
    for (const char* file : {"profile.json", "scale_table.json", "trace.json"}) {
      const std::string text = bytes(std::string("both/") + file);
      EXPECT_TRUE(parse_json(text, file).ok()) << file;
      EXPECT_TRUE(text == bytes(std::string("alone1/") + file) ||
                  text == bytes(std::string("alone2/") + file))
          << file;
    }
  }
}

// The drawings of docs/schedules.md that need no profile are what the tool draws.
TEST_F(RehearseCommand, TheDocumentedSchedulesAreDrawnSo) {
  const std::string page = read_file(SOURCE_DIR "/docs/schedules.md").value_or("");
  for (const char* schedule : {"1f1b", "1f1b --set parallel.virtual_stages=2", "gpipe",
                               "memory-min", "zb-1p", "v-shape"}) {
    ChildProcess child(path(""), fmt::format("{} plan {}/etc/job.toml.example --gpus 4 --show "
                                             "--set model.layers=8 --set training.global_batch=8 "
                                             "--set parallel.schedule={}",
                                             TRAINER, SOURCE_DIR, schedule));
    ASSERT_EQ(child.wait(kDeadline), 0) << child.output();
    const std::string output = child.output();
    const size_t begin = output.find("  0 |"), end = output.find("\n\n", begin);
    ASSERT_NE(begin, std::string::npos) << output;
    EXPECT_THAT(page, HasSubstr("```\n" + output.substr(begin, end - begin) + "\n```")) << schedule;
  }
}

TEST_F(RehearseCommand, WhatCannotBeWrittenIsSaid) {
  EXPECT_EQ(run("--cluster cluster.toml --gpus 4 -o job.toml"), 78) << output_;
  EXPECT_THAT(output_, HasSubstr("job.toml"));
  ChildProcess full(path(""), std::string("sh -c 'exec ") + TRAINER +
                                  " rehearse job.toml --cluster cluster.toml --gpus 4 >/dev/full'");
  EXPECT_EQ(full.wait(kDeadline), 1);
  EXPECT_THAT(full.output(), HasSubstr("could not be written to standard output"));
  // A limit on file sizes, as a full disk.
  ChildProcess limited(path(""), std::string("sh -c 'ulimit -f 1; exec ") + TRAINER +
                                     " rehearse job.toml --cluster cluster.toml --gpus 4 -o out'");
  EXPECT_EQ(limited.wait(kDeadline), 1);
  EXPECT_THAT(limited.output(), HasSubstr("profile.json"));
  EXPECT_FALSE(std::filesystem::exists(path("out/profile.json")));
}

}  // namespace
}  // namespace flextrain::trainer
