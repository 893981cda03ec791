// SPDX-License-Identifier: MIT
#include "trainer/comm/communicator.h"

#include <unistd.h>

#include <array>

namespace flextrain::trainer {

std::string Communicator::node_name() const {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

}  // namespace flextrain::trainer
