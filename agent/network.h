// SPDX-License-Identifier: MIT
// Which network the ranks of several hosts talk over.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace flextrain::agent {

struct Interface {
  std::string name;
  uint32_t address = 0, mask = 0;  // IPv4, host byte order
};

// The narrowest own subnet that holds all `addresses`, as "10.1.2.0/24"; where there is none
// (routed networks), the addresses' /24s, comma-separated. Pure.
std::string choose_networks(const std::vector<uint32_t>& addresses,
                            const std::vector<Interface>& interfaces);

// The same for host names, by this machine's resolver and interfaces. kNotFound names a host that
// does not resolve.
Result<std::string> networks_of_hosts(const std::vector<std::string>& hosts);

}  // namespace flextrain::agent
