// SPDX-License-Identifier: MIT
// A temporary folder and rows with every field set.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "store/store.h"
#include "tests/temp_folder.h"

namespace flextrain::store {

class StoreFixture : public ::testing::Test {
 protected:
  StoreFixture() {
    options_.path = folder_ + "/flextrain.db";
    options_.busy_timeout_ms = 100;
  }

  std::unique_ptr<Store> open() {
    Result<std::unique_ptr<Store>> store = Store::open(options_);
    EXPECT_TRUE(store.ok()) << store.status().to_string();
    return store.ok() ? std::move(*store) : nullptr;
  }

  TempFolder temp_folder_;
  const std::string& folder_ = temp_folder_.path();
  OpenOptions options_;
};

// Text that does not compress well, the same every time.
inline std::string random_text(size_t size) {
  std::string text(size, ' ');
  uint64_t state = 88172645463325252ULL;
  for (char& c : text) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    c = static_cast<char>('!' + state % 90);
  }
  return text;
}

inline JobKey key(uint32_t job_id, int64_t submit_time = 1000, int restart_count = 0) {
  return {"c1", job_id, submit_time, restart_count};
}

inline ElasticJobRow full_job(uint32_t job_id) {
  ElasticJobRow row;
  row.key = key(job_id);
  row.user = "anna";
  row.user_id = 1001;
  row.group_id = 1002;
  row.name = "train";
  row.account = "acc";
  row.partition = "gpu";
  row.mode = "dp+pp";
  row.base_gpus = 4;
  row.held_gpus = 12;
  row.max_gpus = 16;
  row.state = "steady";
  row.state_reason = "because";
  row.registered = true;
  row.fingerprint = "cpu onednn-2.6 avx2";
  row.numerics = "fp32";
  row.agent_version = "0.1.0";
  row.agent_path = "/usr/bin/flextrain-agent";
  row.work_dir = "/home/anna";
  row.registration = {{"environment", {{"HOME", "/home/anna"}}}, {"text", "quote ' and \n line"}};
  row.allocations = Json::array({{{"job_id", job_id}, {"host", "n1"}, {"gpus", 4}}});
  row.grow_overhead_seconds = 3.25;
  row.shrink_overhead_seconds = 2.5;
  row.last_switch_time = 1500;
  row.last_failure_time = 1400;
  row.failures = 2;
  row.plan_id = "abcdef";
  row.first_seen = 1001;
  row.start_time = 1002;
  row.exit_code = 85;
  row.end_reason = "done";
  row.updated = 1600;
  return row;
}

inline DecisionRow refusal(uint32_t job_id, int64_t time, const std::string& rule = "gate") {
  DecisionRow row;
  row.job = key(job_id);
  row.user = "anna";
  row.kind = "refuse";
  row.rule = rule;
  row.reason = "P = 0.3 at " + std::to_string(time);
  row.formula = "exp(-lambda*O/S) > P_th";
  row.from_gpus = 4;
  row.to_gpus = 8;
  row.inputs = {{"O", 60.0}, {"S", 2.0}};
  row.first_time = row.last_time = time;
  return row;
}

}  // namespace flextrain::store
