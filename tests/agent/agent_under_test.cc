// SPDX-License-Identifier: MIT
#include <unistd.h>

#include "agent/agent_main.h"
#include "protocol/fake_auth.h"

int main(int argc, char** argv) {
  return flextrain::agent::agent_main(
      argc, argv, {[] {
        return flextrain::Result<std::shared_ptr<flextrain::protocol::Authenticator>>(
            std::make_shared<flextrain::protocol::FakeAuthenticator>(::getuid(), ::getgid()));
      }});
}
