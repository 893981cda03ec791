// SPDX-License-Identifier: MIT
// trainer/comm, internal: waiting for MPI requests without burning the core another rank needs.
#pragma once

#include <mpi.h>

#include "base/status.h"

namespace flextrain::trainer {

// The Status of an MPI return code; `what` names the call.
Status mpi_status(int code, const char* what);

// Waits until `request` is complete. Yields first, then sleeps between polls with a growing pause:
// several ranks may share one core, and a spinning wait would starve the one that works.
Status mpi_wait(MPI_Request* request, const char* what);

}  // namespace flextrain::trainer
