// SPDX-License-Identifier: GPL-2.0-or-later
// Answers sflex's queries: rows as docs/sflex.md lists them, out of the store and the live state.
// Reads only. Who may see what: root and SlurmUser everything; a user his own jobs, and of the
// others no more than idle and diag.
#pragma once

#include <sys/types.h>

#include "base/json.h"
#include "base/status.h"
#include "protocol/messages.h"
#include "slurm_plugin/controller/engine.h"
#include "store/store.h"

namespace flextrain::slurm_plugin {

struct QueryCaller {
  uid_t uid = static_cast<uid_t>(-1);
  bool admin = false;
};

// Body of the response, {"rows": […]}. kInvalidArgument: unknown query, filter of a wrong type;
// kNotFound: no such decision, job or table, or not the caller's. `now` in unix seconds.
Result<Json> answer_query(const protocol::QueryRequest& request, const QueryCaller& caller,
                          store::Queries& queries, const LiveState& live, int64_t now);

}  // namespace flextrain::slurm_plugin
