// SPDX-License-Identifier: MIT
// A Backend to read: every operation is its formula in plain loops and double precision. Slow; for
// tests. The tuned backends are compared with it tensor by tensor.
#pragma once

#include <memory>

#include "trainer/backend/backend.h"

namespace flextrain::trainer {

std::unique_ptr<Backend> make_reference_backend();

}  // namespace flextrain::trainer
