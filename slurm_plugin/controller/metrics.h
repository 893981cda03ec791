// SPDX-License-Identifier: GPL-2.0-or-later
// The controller's state as OpenMetrics text (docs/controller.md lists the families). Pure.
#pragma once

#include <string>

#include "base/json.h"
#include "slurm_plugin/controller/engine.h"

namespace flextrain::slurm_plugin {

inline constexpr const char* kMetricsContentType =
    "application/openmetrics-text; version=1.0.0; charset=utf-8";

// `diag`: the row of `sflex diag`; what it lacks, as before the first round, counts as 0. Names
// neither jobs nor people: whoever can connect may read it.
std::string render_metrics(const Json& diag, const LiveState& live);

}  // namespace flextrain::slurm_plugin
