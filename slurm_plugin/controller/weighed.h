// SPDX-License-Identifier: GPL-2.0-or-later
// What a stored decision was chosen from, for `sflex explain` (docs/sflex.md). Pure.
#pragma once

#include "base/json.h"
#include "store/rows.h"

namespace flextrain::slurm_plugin {

// "entries", "victims", "remaining_source", "gate" and "forecast", as far as they concern `row`; {}
// where the policy did not make it, or the snapshot is another release's. Victims are other
// people's jobs: for `admin` alone.
Json weighed_json(const store::DecisionRow& row, const Json& snapshot, bool admin);

}  // namespace flextrain::slurm_plugin
