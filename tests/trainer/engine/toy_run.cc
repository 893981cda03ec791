// SPDX-License-Identifier: MIT
#include "tests/trainer/engine/toy_run.h"

#include <cstring>
#include <map>

namespace flextrain::trainer {
namespace {

uint64_t scramble(uint64_t x) {
  x = (x ^ (x >> 33)) * 0xFF51AFD7ED558CCDu;
  x = (x ^ (x >> 33)) * 0xC4CEB9FE1A85EC53u;
  return x ^ (x >> 33);
}

template <typename T>
void put(std::string& bytes, const T& value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// Reads what put() wrote; the bytes are the test's own.
class Reader {
 public:
  explicit Reader(const std::string& bytes) : bytes_(bytes) {}
  bool at_end() const { return offset_ >= bytes_.size(); }
  template <typename T>
  T take() {
    T value;
    std::memcpy(&value, bytes_.data() + offset_, sizeof value);
    offset_ += sizeof value;
    return value;
  }
  std::string text(size_t size) {
    offset_ += size;
    return bytes_.substr(offset_ - size, size);
  }
  std::vector<float> floats(size_t count) {
    std::vector<float> values(count);
    std::memcpy(values.data(), bytes_.data() + offset_, count * sizeof(float));
    offset_ += count * sizeof(float);
    return values;
  }

 private:
  const std::string& bytes_;
  size_t offset_ = 0;
};

std::string encode(const LayerState& state) {
  std::string bytes;
  put(bytes, int64_t{state.layer});
  put(bytes, state.tensors.size());
  for (const NamedTensor& tensor : state.tensors) {
    put(bytes, tensor.name.size());
    bytes += tensor.name;
    put(bytes, static_cast<int64_t>(tensor.role));
    put(bytes, tensor.shape.size());
    for (int64_t extent : tensor.shape) put(bytes, extent);
    put(bytes, tensor.values.size());
    bytes.append(reinterpret_cast<const char*>(tensor.values.data()),
                 tensor.values.size() * sizeof(float));
  }
  return bytes;
}

LayerState decode(Reader& reader) {
  LayerState state;
  state.layer = static_cast<planner::LayerId>(reader.take<int64_t>());
  state.tensors.resize(reader.take<size_t>());
  for (NamedTensor& tensor : state.tensors) {
    tensor.name = reader.text(reader.take<size_t>());
    tensor.role = static_cast<TensorRole>(reader.take<int64_t>());
    tensor.shape.resize(reader.take<size_t>());
    for (int64_t& extent : tensor.shape) extent = reader.take<int64_t>();
    tensor.values = reader.floats(reader.take<size_t>());
  }
  return state;
}

}  // namespace

TrainConfig toy_config(int layers, int global_batch) {
  TrainConfig config;
  config.model.layers = layers;
  config.model.hidden = 32;
  config.model.heads = 4;
  config.model.kv_heads = 2;
  config.model.ffn = 48;
  config.model.vocab = 64;
  config.model.sequence = 16;
  config.global_batch = global_batch;
  config.steps = 20;
  config.optimizer.learning_rate = 1e-2;
  config.optimizer.min_learning_rate = 1e-3;
  config.optimizer.warmup_samples = 2 * global_batch;
  return config;
}

void ToyText::fill(uint64_t key, std::span<int32_t> tokens) const {
  uint64_t state = scramble(key + 1);
  int32_t token = static_cast<int32_t>(state % static_cast<uint64_t>(vocab_));
  for (int32_t& out : tokens) {
    out = token;
    state = scramble(state + key);
    token = state % 8 == 0 ? static_cast<int32_t>((state >> 8) % static_cast<uint64_t>(vocab_))
                           : (5 * token + 3) % vocab_;
  }
  if (!padding_) return;
  const size_t keep = tokens.size() - key % (tokens.size() - 2);
  for (size_t i = keep; i < tokens.size(); ++i) tokens[i] = -1;
}

Result<std::string> gather_state(const Engine& engine, const TrainConfig& config,
                                 Communicator& world) {
  std::string mine;
  for (planner::LayerId layer : engine.layers_to_save()) {
    ASSIGN_OR_RETURN(const LayerState state, engine.export_layer(layer));
    mine += encode(state);
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> parts, world.gather_bytes(mine, 0));
  std::map<planner::LayerId, std::string> layers;
  for (const std::string& part : parts) {
    Reader reader(part);
    while (!reader.at_end()) {
      const LayerState state = decode(reader);
      if (!layers.emplace(state.layer, encode(state)).second)
        return internal_error("layer {} is saved by two ranks", state.layer);
    }
  }
  if (world.rank() == 0 && layers.size() != static_cast<size_t>(num_layers(config.model)))
    return internal_error("{} layers are saved, {} exist", layers.size(), num_layers(config.model));
  std::string all;
  for (const auto& [layer, bytes] : layers) all += bytes;
  return all;
}

Status scatter_state(Engine& engine, std::string bytes, Communicator& world) {
  RETURN_IF_ERROR(world.broadcast_bytes(bytes, 0));
  const std::vector<planner::LayerId> held = engine.layers_held();
  Reader reader(bytes);
  while (!reader.at_end()) {
    const LayerState state = decode(reader);
    if (std::find(held.begin(), held.end(), state.layer) == held.end()) continue;
    RETURN_IF_ERROR(engine.import_layer(state));
  }
  return {};
}

uint64_t fingerprint_bytes(const std::string& bytes) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (unsigned char c : bytes) hash = (hash ^ c) * 0x100000001B3u;
  return hash;
}

}  // namespace flextrain::trainer
