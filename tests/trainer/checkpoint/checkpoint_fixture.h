// SPDX-License-Identifier: MIT
// A model of two transformer layers (global layers 0 … 3) and one-line saving and loading.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/file.h"
#include "tests/trainer/checkpoint/fake_engine.h"
#include "tests/trainer/checkpoint/faulty_file_system.h"
#include "tests/trainer/temp_folder.h"
#include "trainer/checkpoint/checkpoint.h"

namespace flextrain::trainer {

class CheckpointTest : public TempFolder {
 protected:
  CheckpointTest() : TempFolder(memory_folder()) {}

  static constexpr const char* kFingerprint = "cpu;test;mb=1";

  TrainConfig config() const {
    TrainConfig config;
    config.model.layers = 2;
    config.model.vocab = 10;
    config.text_path = "text";
    config.checkpoint_dir = path("ckpt");
    return config;
  }
  planner::Plan plan(int pipeline_parallel = 1) const {
    planner::RegularLayout layout;
    layout.num_transformer_layers = 2;
    layout.pipeline_parallel = pipeline_parallel;
    layout.global_batch = 8;
    const auto plan = planner::make_regular_plan(layout);
    EXPECT_TRUE(plan.ok()) << plan.status().to_string();
    return plan.ok() ? *plan : planner::Plan();
  }
  static CheckpointMeta meta(int64_t step) {
    CheckpointMeta meta;
    meta.cursor = {step, step * 8, 44, 1};
    meta.fingerprint = kFingerprint;
    return meta;
  }
  // Saves step-N whose values are N.
  Result<std::string> save(int64_t step, FileSystem& files = posix_file_system()) const {
    ThreadCommunicator comm(std::make_shared<ThreadGroup>(1), 0);
    const FakeEngine engine({0, 1, 2, 3}, static_cast<float>(step));
    return save_checkpoint(files, comm, engine, config(), plan(), meta(step));
  }
  struct Loaded {
    Result<LoadReport> report;
    float value;  // of the state in the engine
    int scale;
  };
  Loaded load(const TrainConfig& config, const std::string& fingerprint = kFingerprint,
              FileSystem& files = posix_file_system()) const {
    ThreadCommunicator comm(std::make_shared<ThreadGroup>(1), 0);
    FakeEngine engine({0, 1, 2, 3}, -1);
    auto report = load_checkpoint(files, comm, engine, config, fingerprint);
    for (int layer = 1; layer < 4; ++layer) {
      if (report.ok()) {
        EXPECT_EQ(engine.value_of(layer), engine.value_of(0)) << "torn state";
      }
    }
    return {std::move(report), engine.value_of(0), engine.accumulation_scale()};
  }
  Loaded load() const { return load(config()); }
  std::string file(int64_t step, const std::string& name) const {
    return path(fmt::format("ckpt/step-{}/{}", step, name));
  }
  // Flips one bit in the middle of a file.
  void flip(const std::string& path) const {
    std::string bytes = *read_file(path);
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
    ASSERT_TRUE(write_file_atomically(path, bytes).ok());
  }
  int leftovers() const {
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(path("ckpt"))) {
      count += entry.path().filename().string().find(".tmp-") != std::string::npos;
    }
    return count;
  }
};

}  // namespace flextrain::trainer
