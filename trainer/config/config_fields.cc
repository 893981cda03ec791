// SPDX-License-Identifier: MIT
#include "trainer/config/config_fields.h"

#include <cmath>
#include <type_traits>

#include "base/json.h"
#include "base/text.h"
#include "planner/schedule_family.h"

namespace flextrain::trainer {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Integers up to here survive the trip through JSON and double ranges unchanged.
constexpr double kMaxCount = 1e15;

template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};
template <class... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;

std::string value_text(const ConfigValue& value) {
  return std::visit(Overloaded{[](bool v) { return std::string(v ? "true" : "false"); },
                               [](int64_t v) { return fmt::format("{}", v); },
                               [](double v) { return format_double(v); },
                               [](const std::string& v) { return fmt::format("\"{}\"", v); }},
                    value);
}

std::string number_text(double value) {
  if (std::abs(value) <= kMaxCount && value == std::floor(value)) {
    return fmt::format("{}", static_cast<int64_t>(value));
  }
  return format_double(value);
}

bool in_range(const ConfigField& field, double value) {
  if (!std::isfinite(value)) return false;
  if (field.above_minimum ? value <= field.minimum : value < field.minimum) return false;
  return value <= field.maximum;
}

Status mismatch(const ConfigField& field, const ConfigValue& value) {
  return invalid_argument("{}.{} must be {}, not {}", field.section, field.name,
                          describe_field(field), value_text(value));
}

// As JSON's writer sees it, which throws on anything else.
bool is_utf8(const std::string& text) {
  return decode_json("text", [&] { return Json(text).dump().size(); }).ok();
}

template <typename Integer>
Status assign_integer(const ConfigField& field, const ConfigValue& value, Integer* target) {
  const auto* number = std::get_if<int64_t>(&value);
  if (number == nullptr || !in_range(field, static_cast<double>(*number))) {
    return mismatch(field, value);
  }
  *target = static_cast<Integer>(*number);
  return {};
}

}  // namespace

std::vector<ConfigField> config_fields(TrainConfig& c) {
  ModelConfig& m = c.model;
  OptimizerConfig& o = c.optimizer;
  return {
      {"model", "layers", &m.layers, 1, 10000},
      {"model", "hidden", &m.hidden, 1, 1 << 20},
      {"model", "heads", &m.heads, 1, 1 << 16},
      {"model", "kv_heads", &m.kv_heads, 1, 1 << 16},
      {"model", "ffn", &m.ffn, 1, 1 << 22},
      {"model", "vocab", &m.vocab, 0, 1 << 24},
      {"model", "sequence", &m.sequence, 1, 1 << 24},
      {"model", "rope_theta", &m.rope_theta, 1, 1e12},
      {"model", "norm_eps", &m.norm_eps, 0, 1, true},
      {"model", "tied_head", &m.tied_head},
      {"model", "init_std", &m.init_std, 0, 10, true},
      {"model", "mtp_num_layers", &m.mtp_num_layers, 0, 16},

      {"optimizer", "learning_rate", &o.learning_rate, 0, 100, true},
      {"optimizer", "min_learning_rate", &o.min_learning_rate, 0, 100},
      {"optimizer", "beta1", &o.beta1, 0, 0.999999},
      {"optimizer", "beta2", &o.beta2, 0, 0.999999},
      {"optimizer", "eps", &o.eps, 0, 1, true},
      {"optimizer", "weight_decay", &o.weight_decay, 0, 100},
      {"optimizer", "clip_norm", &o.clip_norm, 0, 1e12},
      {"optimizer", "warmup_samples", &o.warmup_samples, 0, kMaxCount},

      {"training", "numerics", &c.numerics},
      {"training", "seed", &c.seed, 0, kMaxCount},
      {"training", "steps", &c.steps, 1, 1e12},
      {"training", "global_batch", &c.global_batch, 1, 1 << 24},
      {"training", "micro_batch_size", &c.micro_batch_size, 1, 1 << 20},
      {"training", "accumulation_scale", &c.accumulation_scale, 1, 60},
      {"training", "mtp_loss_scaling_factor", &c.mtp_loss_scaling_factor, 0, 1000},

      {"parallel", "pipeline_parallel", &c.pipeline_parallel, 0, 1 << 20},
      {"parallel", "data_parallel", &c.data_parallel, 0, 1 << 20},
      {"parallel", "virtual_stages", &c.virtual_stages, 0, 1 << 10},
      {"parallel", "schedule", &c.schedule},
      {"parallel", "recompute", &c.recompute},
      {"parallel", "memory_cap_bytes", &c.memory_cap_bytes, 0, kMaxCount},
      {"parallel", "no_ops", &c.no_ops},

      {"data", "text", &c.text_path},
      {"data", "tokens", &c.tokens_path},
      {"data", "tokenizer", &c.tokenizer_path},
      {"data", "tokenizer_vocab", &c.tokenizer_vocab, 300, 1 << 20},
      {"data", "eval_fraction", &c.eval_fraction, 0, 0.5},
      {"data", "eval_every", &c.eval_every, 0, 1e12},
      {"data", "eval_sequences", &c.eval_sequences, 1, 1 << 24},

      {"checkpoint", "dir", &c.checkpoint_dir},
      {"checkpoint", "every_steps", &c.checkpoint_every_steps, 0, 1e12},
      {"checkpoint", "every_seconds", &c.checkpoint_every_seconds, 0, 1e9},
      {"checkpoint", "keep", &c.checkpoint_keep, 1, 1 << 20},
      {"checkpoint", "disk_budget_bytes", &c.checkpoint_disk_budget_bytes, 0, kMaxCount},

      {"output", "dir", &c.output_dir},
      {"output", "profile_steps", &c.profile_steps, 0, 1 << 20},
      {"output", "step_window", &c.step_window, 3, 1 << 20},
      {"output", "trace", &c.trace},
      {"output", "min_step_seconds", &c.min_step_seconds, 0, 3600},

      {"injection", "slow_layer", &c.slow_layer, -1, 10001},
      {"injection", "slow_factor", &c.slow_factor, 1, 1000},
      {"injection", "layer_seconds", &c.layer_seconds, 0, 60},
      {"injection", "slow_from_step", &c.slow_from_step, 1, 1e12},
      {"injection", "hold_dir", &c.hold_dir},
      {"injection", "save_seconds", &c.save_seconds, 0, 3600},
      {"injection", "init_seconds", &c.init_seconds, 0, 3600},
  };
}

std::string describe_field(const ConfigField& field) {
  const auto range = [&field](std::string_view kind) {
    if (field.minimum == -kInfinity) return std::string(kind);
    return fmt::format("{} {} {} {} {}", kind, field.above_minimum ? "above" : "from",
                       number_text(field.minimum), field.above_minimum ? "up to" : "to",
                       number_text(field.maximum));
  };
  return std::visit(
      Overloaded{[&](int*) { return range("an integer"); },
                 [&](int64_t*) { return range("an integer"); },
                 [&](uint64_t*) { return range("an integer"); },
                 [&](double*) { return range("a number"); },
                 [](bool*) { return std::string("true or false"); },
                 [](std::string*) { return std::string("a string"); },
                 [](planner::Numerics*) { return std::string("\"exact\" or \"fp32\""); }},
      field.target);
}

Status assign_field(const ConfigField& field, const ConfigValue& value) {
  return std::visit(
      Overloaded{[&](int* target) { return assign_integer(field, value, target); },
                 [&](int64_t* target) { return assign_integer(field, value, target); },
                 [&](uint64_t* target) { return assign_integer(field, value, target); },
                 [&](double* target) -> Status {
                   double number = 0;
                   if (const auto* integer = std::get_if<int64_t>(&value)) {
                     number = static_cast<double>(*integer);
                   } else if (const auto* real = std::get_if<double>(&value)) {
                     number = *real;
                   } else {
                     return mismatch(field, value);
                   }
                   if (!in_range(field, number)) return mismatch(field, value);
                   *target = number;
                   return {};
                 },
                 [&](bool* target) -> Status {
                   const auto* flag = std::get_if<bool>(&value);
                   if (flag == nullptr) return mismatch(field, value);
                   *target = *flag;
                   return {};
                 },
                 [&](std::string* target) -> Status {
                   const auto* text = std::get_if<std::string>(&value);
                   if (text == nullptr) return mismatch(field, value);
                   if (!is_utf8(*text) || text->find('\0') != std::string::npos) {
                     // Plans, manifests and reports are JSON.
                     return invalid_argument("{}.{} must be UTF-8 text without NUL characters",
                                             field.section, field.name);
                   }
                   *target = *text;
                   return {};
                 },
                 [&](planner::Numerics* target) -> Status {
                   const auto* text = std::get_if<std::string>(&value);
                   if (text == nullptr) return mismatch(field, value);
                   const Result<planner::Numerics> parsed = planner::parse_numerics(*text);
                   if (!parsed.ok()) return mismatch(field, value);
                   *target = *parsed;
                   return {};
                 }},
      field.target);
}

Status validate_config(const TrainConfig& c) {
  const ModelConfig& m = c.model;
  if (m.hidden % m.heads != 0) {
    return invalid_argument("model.hidden ({}) must be a multiple of model.heads ({})", m.hidden,
                            m.heads);
  }
  if (m.heads % m.kv_heads != 0) {
    return invalid_argument("model.heads ({}) must be a multiple of model.kv_heads ({})", m.heads,
                            m.kv_heads);
  }
  if ((m.hidden / m.heads) % 2 != 0) {
    return invalid_argument(
        "model.hidden / model.heads is {}, but rotary embeddings turn pairs of values: it must be "
        "even",
        m.hidden / m.heads);
  }
  if (c.global_batch % c.micro_batch_size != 0) {
    return invalid_argument(
        "training.global_batch ({}) must be a multiple of training.micro_batch_size ({})",
        c.global_batch, c.micro_batch_size);
  }
  if (c.optimizer.min_learning_rate > c.optimizer.learning_rate) {
    return invalid_argument(
        "optimizer.min_learning_rate ({}) must not be above optimizer.learning_rate ({})",
        c.optimizer.min_learning_rate, c.optimizer.learning_rate);
  }
  if (c.schedule != "searched" && c.schedule != "auto" &&
      !planner::parse_plan_schedule(c.schedule).ok()) {
    return invalid_argument(
        "parallel.schedule must be \"1f1b\", \"gpipe\", \"memory-min\", \"zb-1p\", \"v-shape\", "
        "\"searched\" or \"auto\", not \"{}\"",
        c.schedule);
  }
  if (c.recompute != "auto" && !planner::parse_recompute(c.recompute).ok()) {
    return invalid_argument(
        "parallel.recompute must be \"none\", \"selective\", \"full\" or \"auto\", not \"{}\"",
        c.recompute);
  }
  if (c.schedule == "v-shape" && c.virtual_stages > 2) {
    return invalid_argument(
        "parallel.virtual_stages ({}) does not go with parallel.schedule = \"v-shape\", which has "
        "two chunks per stage",
        c.virtual_stages);
  }
  if (!c.no_ops && c.pipeline_parallel > m.layers + m.mtp_num_layers) {
    return invalid_argument(
        "parallel.pipeline_parallel ({}) must not be above model.layers ({}){}: No-Ops, which "
        "would fill the other stages, are forbidden (parallel.no_ops = false)",
        c.pipeline_parallel, m.layers,
        m.mtp_num_layers > 0 ? fmt::format(" + model.mtp_num_layers ({})", m.mtp_num_layers) : "");
  }
  if (m.mtp_num_layers >= m.sequence) {
    return invalid_argument(
        "model.mtp_num_layers ({}) must be below model.sequence ({}): nothing lies further ahead",
        m.mtp_num_layers, m.sequence);
  }
  if (c.virtual_stages > 1 && c.pipeline_parallel == 1) {
    return invalid_argument("parallel.virtual_stages ({}) needs parallel.pipeline_parallel above 1",
                            c.virtual_stages);
  }
  if (c.eval_every > 0 && c.eval_fraction <= 0) {
    return invalid_argument(
        "data.eval_every is {} but data.eval_fraction is 0: nothing is held out to evaluate on",
        c.eval_every);
  }
  if (c.checkpoint_dir.empty()) return invalid_argument("checkpoint.dir must not be empty");
  if (c.output_dir.empty()) return invalid_argument("output.dir must not be empty");
  if (c.slow_layer >= num_layers(m)) {
    return invalid_argument("injection.slow_layer ({}) must be a layer id from 0 to {}",
                            c.slow_layer, num_layers(m) - 1);
  }
  return {};
}

}  // namespace flextrain::trainer
