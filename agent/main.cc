// SPDX-License-Identifier: MIT
// flextrain-agent: one per elastic job, one per companion. See docs/agent.md.
#include "agent/agent_main.h"

int main(int argc, char** argv) {
  return flextrain::agent::agent_main(
      argc, argv, {[] { return flextrain::protocol::make_munge_authenticator(); }});
}
