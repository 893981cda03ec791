// SPDX-License-Identifier: MIT
// Random valid Plans for property tests: asymmetric pipelines, unequal tensor parallelism, mixed
// devices, any rank order, named or explicit schedules.
#pragma once

#include <random>

#include "planner/plan.h"

namespace flextrain::planner {

Plan random_plan(std::mt19937& random);

// Field by field, so that a field which JSON forgets is noticed.
bool same_plan(const Plan& a, const Plan& b);

}  // namespace flextrain::planner
