// SPDX-License-Identifier: MIT
// A Snapshot and the Parameters it was decided with as JSON, and back: what is read gives the same
// decisions. Lists that jobs share are written once. Pure.
#pragma once

#include "base/json.h"
#include "base/status.h"
#include "policy/policy.h"

namespace flextrain::policy {

Json snapshot_to_json(const Snapshot& snapshot, const Parameters& parameters);

struct StoredSnapshot {
  Snapshot snapshot;
  Parameters parameters;
};
// kInvalidArgument where it is none, or of a release that wrote other fields.
Result<StoredSnapshot> snapshot_from_json(const Json& json);

}  // namespace flextrain::policy
