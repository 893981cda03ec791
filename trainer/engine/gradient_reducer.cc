// SPDX-License-Identifier: MIT
#include "trainer/engine/gradient_reducer.h"

namespace flextrain::trainer {

Result<GradientReducer> GradientReducer::make(Backend& backend, Communicator& world,
                                              const std::vector<StoredLayer>& layers) {
  GradientReducer reducer;
  reducer.backend_ = &backend;
  for (const StoredLayer& layer : layers) {
    const std::vector<int>& ranks = layer.held.reduce_ranks;
    if (ranks.size() < 2 || reducer.groups_.contains(ranks)) continue;
    // The token is the first layer of the group, the same on all its ranks.
    ASSIGN_OR_RETURN(auto group, world.subgroup(ranks, layer.held.layer));
    reducer.groups_.emplace(ranks, std::move(group));
  }
  return reducer;
}

Status GradientReducer::reduce(std::vector<StoredLayer>& layers) {
  for (StoredLayer& layer : layers) {
    if (layer.held.reduce_ranks.size() < 2) continue;
    Communicator& group = *groups_.at(layer.held.reduce_ranks);
    const Status status =
        layer.gradients.dtype() == DType::kInt64
            ? group.all_reduce(backend_->communication_i64(layer.gradients), ReduceOp::kSum)
            : group.all_reduce(backend_->communication_f32(layer.gradients), ReduceOp::kSum);
    if (!status.ok())
      return status.with_context(
          fmt::format("summing the gradients of layer {}", layer.held.layer));
  }
  return {};
}

}  // namespace flextrain::trainer
