// SPDX-License-Identifier: MIT
// trainer/config: job.toml → TrainConfig. Every key, its unit and default: docs/trainer-config.md.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "planner/plan.h"

namespace flextrain::trainer {

// Llama-style dense decoder: RMSNorm, RoPE, grouped-query attention, SwiGLU.
struct ModelConfig {
  int layers = 4;      // transformer layers
  int hidden = 256;    // model width
  int heads = 4;       // query heads; hidden % heads == 0
  int kv_heads = 4;    // key/value heads; heads % kv_heads == 0
  int ffn = 704;       // SwiGLU inner width
  int vocab = 0;       // 0 = the tokeniser's size
  int sequence = 256;  // tokens per sequence
  double rope_theta = 10000.0;
  double norm_eps = 1e-5;
  bool tied_head = false;  // LM head shares the embedding matrix
  double init_std = 0.02;
  int mtp_num_layers = 0;  // depths of multi-token prediction (DeepSeek-V3); 0 = none
};
// Global layers, ids 0 … num_layers - 1 (planner/plan.h).
inline int num_layers(const ModelConfig& model) {
  return planner::num_layers(model.layers, model.mtp_num_layers);
}

struct OptimizerConfig {  // AdamW, linear warm-up then cosine decay, both over consumed samples
  double learning_rate = 3e-4, min_learning_rate = 3e-5;
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
  double clip_norm = 1.0;  // 0 = no clipping
  int64_t warmup_samples = 0;
};

struct TrainConfig {
  ModelConfig model;
  OptimizerConfig optimizer;
  planner::Numerics numerics = planner::Numerics::kExact;
  uint64_t seed = 1;
  int64_t steps = 100;
  int global_batch = 8;                  // sequences per step
  int micro_batch_size = 1;              // sequences; the accumulation unit of `exact`
  int accumulation_scale = 44;           // S of the fixed-point gradients: fits a token-mean loss
  double mtp_loss_scaling_factor = 0.1;  // of the mean of the MTP depths' losses

  // [parallel]: used only where no Plan is given (no agent, no --plan)
  int pipeline_parallel = 0;       // 0 = as many as there are ranks
  int data_parallel = 0;           // 0 = ranks / pipeline_parallel
  int virtual_stages = 1;          // 0 = the scale table's choice
  std::string schedule = "1f1b";   // "auto" = the scale table's choice
  std::string recompute = "none";  // "auto" = the scale table's choice
  // Per rank, everything on it; 0 = none. The schedule is then made from a profile to keep it.
  int64_t memory_cap_bytes = 0;
  bool no_ops = true;  // false: every chunk must hold a layer

  // [data]
  std::string text_path;        // UTF-8 text, one document per blank-line-separated block
  std::string tokens_path;      // memory-mapped token file; made from text_path when missing
  std::string tokenizer_path;   // SentencePiece model; trained on text_path when missing
  int tokenizer_vocab = 4096;   // size when it is trained
  double eval_fraction = 0.02;  // held-out part, from the end
  int64_t eval_every = 0;       // steps, 0 = never
  int eval_sequences = 8;

  // [checkpoint]
  std::string checkpoint_dir = "checkpoints";
  int64_t checkpoint_every_steps = 0;   // 0 = off
  double checkpoint_every_seconds = 0;  // 0 = off; rank 0's clock decides, all ranks agree
  int checkpoint_keep = 3;
  int64_t checkpoint_disk_budget_bytes = 0;  // 0 = unlimited

  // [output]
  std::string output_dir = ".";  // metrics.jsonl, trace.json, profile.json
  int64_t profile_steps = 3;     // steps after the first that are profiled, 0 = off
  int64_t step_window = 200;     // steps whose median is compared with the profile, and kept
  bool trace = true;
  double min_step_seconds = 0;  // paces steps to at least this wall time (tests and demos)
  // Test hook: layer `slow_layer` takes `slow_factor` times as long (injection, no effect on
  // values).
  int slow_layer = -1;
  double slow_factor = 1.0;
  // Every layer takes at least so long per micro-batch forward, twice that backward, asleep: stands
  // in for a device on machines whose ranks share cores (no effect on values).
  double layer_seconds = 0;
  int64_t slow_from_step = 1;  // the two above begin with this step, the first one is 1
  // Points where a fault test stops the training (run/hold_point.h); "" = none.
  std::string hold_dir;
  // A save, and the start up to the sign "init", take at least so long: for tests that must hit
  // them.
  double save_seconds = 0, init_seconds = 0;
};

}  // namespace flextrain::trainer
