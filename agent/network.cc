// SPDX-License-Identifier: MIT
#include "agent/network.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <set>

namespace flextrain::agent {
namespace {

std::string cidr(uint32_t address, uint32_t mask) {
  const uint32_t net = address & mask;
  return fmt::format("{}.{}.{}.{}/{}", net >> 24, net >> 16 & 255, net >> 8 & 255, net & 255,
                     std::popcount(mask));
}

std::vector<Interface> own_interfaces() {
  std::vector<Interface> interfaces;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return interfaces;
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || i->ifa_netmask == nullptr || i->ifa_addr->sa_family != AF_INET ||
        (i->ifa_flags & IFF_UP) == 0 || (i->ifa_flags & IFF_LOOPBACK) != 0) {
      continue;
    }
    interfaces.push_back(
        {i->ifa_name, ntohl(reinterpret_cast<const sockaddr_in*>(i->ifa_addr)->sin_addr.s_addr),
         ntohl(reinterpret_cast<const sockaddr_in*>(i->ifa_netmask)->sin_addr.s_addr)});
  }
  freeifaddrs(list);
  return interfaces;
}

}  // namespace

std::string choose_networks(const std::vector<uint32_t>& addresses,
                            const std::vector<Interface>& interfaces) {
  const Interface* best = nullptr;
  for (const Interface& candidate : interfaces) {
    const bool holds_all = std::all_of(addresses.begin(), addresses.end(), [&](uint32_t address) {
      return (address & candidate.mask) == (candidate.address & candidate.mask);
    });
    if (holds_all && (best == nullptr || candidate.mask > best->mask)) best = &candidate;
  }
  if (best != nullptr) return cidr(best->address, best->mask);
  std::set<std::string> nets;
  for (const uint32_t address : addresses) nets.insert(cidr(address, 0xffffff00U));
  std::string text;
  for (const std::string& net : nets) text += (text.empty() ? "" : ",") + net;
  return text;
}

Result<std::string> networks_of_hosts(const std::vector<std::string>& hosts) {
  std::vector<uint32_t> addresses;
  for (const std::string& host : hosts) {
    addrinfo hints{};
    hints.ai_family = AF_INET;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found);
    if (error != 0 || found == nullptr) {
      return not_found("host '{}' does not resolve: {}", host, gai_strerror(error));
    }
    const uint32_t address =
        ntohl(reinterpret_cast<const sockaddr_in*>(found->ai_addr)->sin_addr.s_addr);
    freeaddrinfo(found);
    // Debian's /etc/hosts gives the own name a 127.0.1.1 that no other host can reach.
    if (address >> 24 != 127) addresses.push_back(address);
  }
  if (addresses.empty()) return not_found("no host has an address outside the loopback");
  return choose_networks(addresses, own_interfaces());
}

}  // namespace flextrain::agent
