// SPDX-License-Identifier: MIT
#include "trainer/engine/action_memory.h"

#include <map>
#include <utility>

namespace flextrain::trainer {
namespace {

using planner::ActionKind;

bool uses_slot(ActionKind kind) { return kind != ActionKind::kReduce && kind != ActionKind::kStep; }

}  // namespace

std::vector<ActionMemory> action_memory(const RankLayout& layout,
                                        const std::vector<ChunkBytes>& chunks, int64_t fixed) {
  using Key = std::pair<int, int>;  // chunk, micro-batch
  std::map<Key, int> slot_uses, workspace_uses;
  for (const RankAction& action : layout.actions) {
    if (!uses_slot(action.action.kind)) continue;
    const Key key{action.action.chunk, action.action.micro_batch};
    ++slot_uses[key];
    if (action.workspace >= 0) ++workspace_uses[key];
  }
  std::map<Key, int> slot_left = slot_uses, workspace_left = workspace_uses;
  std::vector<ActionMemory> memory;
  memory.reserve(layout.actions.size());
  int64_t held = fixed;
  for (const RankAction& action : layout.actions) {
    ActionMemory& of = memory.emplace_back();
    of.before = of.after = held;
    if (!uses_slot(action.action.kind)) continue;
    const Key key{action.action.chunk, action.action.micro_batch};
    const ChunkBytes& bytes = chunks[static_cast<size_t>(key.first)];
    if (slot_left[key] == slot_uses[key]) held += bytes.slot;
    if (action.workspace >= 0 && workspace_left[key] == workspace_uses[key]) {
      held += bytes.workspace;
    }
    if (action.workspace >= 0 && --workspace_left[key] == 0) held -= bytes.workspace;
    if (--slot_left[key] == 0) held -= bytes.slot;
    of.after = held;
  }
  return memory;
}

}  // namespace flextrain::trainer
