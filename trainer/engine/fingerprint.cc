// SPDX-License-Identifier: MIT
// Names what, beyond the configuration, decides the bits of a loss (engine.h).
#include "trainer/backend/backend.h"
#include "trainer/engine/engine.h"

namespace flextrain::trainer {

std::string numerics_fingerprint(const TrainConfig& config) {
  return fmt::format("{};mb={}", cpu_backend_fingerprint(), config.micro_batch_size);
}

}  // namespace flextrain::trainer
