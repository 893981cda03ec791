// SPDX-License-Identifier: MIT
// The endpoint's HTTP: libmicrohttpd's daemon, the event loop that drives it, and what it calls
// there. Nothing here blocks. Internal to the endpoint.
//
// The loop is ours, not libmicrohttpd's own thread, because of what 0.9.75 does when it is stopped
// or quiesced while it works: it builds the header of an error answer that it has not taken (a null
// pointer), and aborts the process when both threads take the listening socket out of epoll.
#pragma once

#include <microhttpd.h>

#include "base/status.h"
#include "protocol/endpoint_core.h"

namespace flextrain::protocol::endpoint {

// Opens the port; `core` must outlive the daemon. Lowers
// core.options.max_connections to half of what files the process may open.
Result<MHD_Daemon*> start_daemon(Core& core);
int port_of(MHD_Daemon* daemon);
// Serves until core.looping is false; takes no more connections once core.listening is false.
void run_event_loop(Core& core, MHD_Daemon* daemon);

}  // namespace flextrain::protocol::endpoint
