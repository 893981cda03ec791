// SPDX-License-Identifier: GPL-2.0-or-later
// Slurm's texts about nodes: host lists and feature expressions. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace flextrain::slurm_plugin {

// "n[1-3,07],gpu5" → {"n1","n2","n3","n07","gpu5"} (slurm.conf(5), NodeName; one or more bracket
// groups, zero padding kept). kInvalidArgument names the text; at most 65536 names.
Result<std::vector<std::string>> expand_host_list(std::string_view text);

// Whether a node with `features` satisfies Slurm's --constraint expression (sbatch(1)): & and |,
// parentheses; the brackets of "one of these for all nodes" count as parentheses and a count "*4"
// is passed over, as one node alone is asked about. "" = yes. An expression that does not parse is
// "no": better to refuse a node than to submit a companion that can never start.
bool features_match(std::string_view expression, const std::vector<std::string>& features);

}  // namespace flextrain::slurm_plugin
