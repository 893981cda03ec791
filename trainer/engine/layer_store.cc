// SPDX-License-Identifier: MIT
#include "trainer/engine/layer_store.h"

#include <algorithm>

namespace flextrain::trainer {
namespace {

constexpr TensorRole kRoles[] = {TensorRole::kWeight, TensorRole::kFirstMoment,
                                 TensorRole::kSecondMoment};

int64_t bytes_of(Tensor t) { return t.size() * dtype_bytes(t.dtype()); }

Tensor tensor_of(const StoredLayer& layer, TensorRole role) {
  switch (role) {
    case TensorRole::kWeight:
      return layer.weights;
    case TensorRole::kFirstMoment:
      return layer.first_moment;
    default:
      return layer.second_moment;
  }
}

const NamedTensor* find_tensor(const LayerState& state, const std::string& name, TensorRole role) {
  const auto found = std::find_if(
      state.tensors.begin(), state.tensors.end(),
      [&](const NamedTensor& tensor) { return tensor.name == name && tensor.role == role; });
  return found == state.tensors.end() ? nullptr : &*found;
}

}  // namespace

Result<LayerStore> LayerStore::make(Backend& backend, const TrainConfig& config,
                                    const std::vector<HeldLayer>& held) {
  LayerStore store;
  store.backend_ = &backend;
  const bool exact = config.numerics == planner::Numerics::kExact;
  double bytes = 0;
  for (const HeldLayer& one : held) {
    const auto size =
        static_cast<double>(parameter_count(layer_parameters(config.model, one.layer)));
    bytes += size * static_cast<double>(3 * dtype_bytes(DType::kFloat32) +
                                        dtype_bytes(exact ? DType::kInt64 : DType::kFloat32));
  }
  RETURN_IF_ERROR(backend.check_room(bytes));
  for (const HeldLayer& one : held) {
    StoredLayer layer;
    layer.held = one;
    layer.parameters = layer_parameters(config.model, one.layer);
    const int64_t size = parameter_count(layer.parameters);
    ASSIGN_OR_RETURN(layer.weights, backend.allocate(DType::kFloat32, size));
    ASSIGN_OR_RETURN(layer.first_moment, backend.allocate(DType::kFloat32, size));
    ASSIGN_OR_RETURN(layer.second_moment, backend.allocate(DType::kFloat32, size));
    ASSIGN_OR_RETURN(layer.gradients,
                     backend.allocate(exact ? DType::kInt64 : DType::kFloat32, size));
    store.index_.emplace(one.layer, store.layers_.size());
    store.layers_.push_back(std::move(layer));
  }
  return store;
}

Status LayerStore::initialize(uint64_t seed) {
  for (StoredLayer& layer : layers_) {
    for (const Parameter& p : layer.parameters) {
      const std::vector<float> values = initial_values(p, seed, layer.held.layer);
      backend_->upload(layer.weights.slice(p.offset, p.size), std::span<const float>(values));
    }
    backend_->fill_zero(layer.first_moment);
    backend_->fill_zero(layer.second_moment);
  }
  return backend_->synchronize();
}

Result<LayerState> LayerStore::export_layer(planner::LayerId id) const {
  const auto found = index_.find(id);
  if (found == index_.end()) return not_found("layer {} is not held by this rank", id);
  const StoredLayer& layer = layers_[found->second];
  LayerState state;
  state.layer = id;
  for (TensorRole role : kRoles)
    for (const Parameter& p : layer.parameters) {
      NamedTensor tensor{p.name, role, p.shape, std::vector<float>(static_cast<size_t>(p.size))};
      backend_->download(tensor_of(layer, role).slice(p.offset, p.size),
                         std::span<float>(tensor.values));
      state.tensors.push_back(std::move(tensor));
    }
  RETURN_IF_ERROR(backend_->synchronize());
  return state;
}

Status LayerStore::import_layer(const LayerState& state) {
  const auto found = index_.find(state.layer);
  if (found == index_.end()) return not_found("layer {} is not held by this rank", state.layer);
  StoredLayer& layer = layers_[found->second];
  if (state.tensors.size() != layer.parameters.size() * std::size(kRoles))
    return invalid_argument("layer {} has {} tensors, this model's has {}", state.layer,
                            state.tensors.size(), layer.parameters.size() * std::size(kRoles));
  for (TensorRole role : kRoles)
    for (const Parameter& p : layer.parameters) {
      const NamedTensor* tensor = find_tensor(state, p.name, role);
      if (tensor == nullptr)
        return invalid_argument("layer {} lacks tensor {} (role {})", state.layer, p.name,
                                static_cast<int>(role));
      if (tensor->shape != p.shape || static_cast<int64_t>(tensor->values.size()) != p.size)
        return invalid_argument("layer {}: tensor {} has {} values, this model's has {}",
                                state.layer, p.name, tensor->values.size(), p.size);
    }
  for (TensorRole role : kRoles)
    for (const Parameter& p : layer.parameters)
      backend_->upload(tensor_of(layer, role).slice(p.offset, p.size),
                       std::span<const float>(find_tensor(state, p.name, role)->values));
  return backend_->synchronize();
}

int64_t LayerStore::static_bytes(planner::LayerId id) const {
  const auto found = index_.find(id);
  if (found == index_.end()) return 0;
  return bytes_of(layers_[found->second].weights) + optimizer_bytes(id) + gradient_bytes(id);
}

int64_t LayerStore::optimizer_bytes(planner::LayerId id) const {
  const auto found = index_.find(id);
  if (found == index_.end()) return 0;
  const StoredLayer& layer = layers_[found->second];
  return bytes_of(layer.first_moment) + bytes_of(layer.second_moment);
}

int64_t LayerStore::gradient_bytes(planner::LayerId id) const {
  const auto found = index_.find(id);
  return found == index_.end() ? 0 : bytes_of(layers_[found->second].gradients);
}

}  // namespace flextrain::trainer
