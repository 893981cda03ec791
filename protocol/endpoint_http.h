// SPDX-License-Identifier: MIT
// The endpoint's HTTP: libmicrohttpd's daemon and what it calls on the event loop's thread. Nothing
// here blocks. Internal to the endpoint.
#pragma once

#include <microhttpd.h>

#include "base/status.h"
#include "protocol/endpoint_core.h"

namespace flextrain::protocol::endpoint {

// Opens the port and starts the event loop; `core` must outlive the daemon. Lowers
// core.options.max_connections to half of what files the process may open.
Result<MHD_Daemon*> start_daemon(Core& core);
int port_of(MHD_Daemon* daemon);

}  // namespace flextrain::protocol::endpoint
