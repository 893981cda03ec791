// SPDX-License-Identifier: GPL-2.0-or-later
// The states of one run of an elastic job. Pure: a transition is (state, event) → (state, actions);
// the engine carries the actions out, and every action may be repeated without harm.
//
//                  agent registered                 grow decided
//   ┌──────────┐ ───────────────────▶ ┌────────┐ ─────────────────▶ ┌────────────────────┐
//   │ starting │                      │ steady │                    │ companions-pending │
//   └──────────┘ ◀─────────────────── └────────┘ ◀──┐               └────────────────────┘
//        ▲           agent gone        │   │  ▲     │ released         │ready      │failed,
//        │                shrink       │   │  │     │                  ▼           │deadline
//        │ agent gone     decided      │   │  │   ┌──────────────┐  ┌───────────┐ │
//        │ (from every                 │   │  │   │ rolling-back │◀─│ switching │ │
//        │  state but ending)          ▼   │  │   └──────────────┘  └───────────┘ │
//        │                 ┌───────────┐   │  │          ▲  failed,     │done     │
//        │                 │ shrinking │   │  │released  │  deadline    │         │
//        │                 └───────────┘   │  │          └──────────────┼─────────┘
//        │          done, failed, deadline │  │                         │
//        │                       ▼         │ ┌───────────┐              │
//        │                       └────────────▶ releasing │◀────────────┘
//        │             companion lost      │ └───────────┘ ◀─┐
//        │                                 ▼                 │ trainer moved, deadline
//        │                          ┌────────────┐           │
//        └───────────────────────── │ recovering │ ──────────┘
//                                   └────────────┘
//   base ended: every state ─▶ ending ─ released, deadline ─▶ ended
//
// starting      the base runs, no agent of it is known
// steady        agent registered, no switch under way, grown or not
// companions-pending  a growth's companions are submitted; not all run, are registered, are checked
// switching     the growth's order is with the agent
// shrinking     the shrink's order is with the agent; its companions go as soon as the trainer has
// left
//               them, the state ends with the first step at the new size
// releasing     companions the trainer has left are being cancelled
// rolling-back  a growth failed; its companions are being cancelled
// recovering    a companion in use went away unasked; the agent relaunches without it
// ending        the base has ended; its companions are being cancelled
// ended         nothing of this run is left
#pragma once

#include <string_view>
#include <vector>

#include "base/status.h"

namespace flextrain::slurm_plugin {

enum class ElasticState {
  kStarting,
  kSteady,
  kCompanionsPending,
  kSwitching,
  kShrinking,
  kReleasing,
  kRollingBack,
  kRecovering,
  kEnding,
  kEnded,
};
inline constexpr int kNumElasticStates = 10;

enum class ElasticEvent {
  kAgentRegistered,   // by a register message, or known from the store
  kAgentGone,         // said bye, or silent for AgentTimeout
  kGrowDecided,       // intent stored
  kShrinkDecided,     // intent stored
  kCompanionsReady,   // all run, are registered, and their fingerprints agree
  kCompanionsFailed,  // one was refused, ended, or is needed by a waiting job
  kSwitchDone,        // the agent confirms the open order
  kSwitchFailed,      // the agent has rolled the open order back
  kTrainerLeft,       // the open shrink's companions are not used any more; the relaunch goes on
  kTrainerMoved,      // the agent reports another size without an open order
  kCompanionLost,     // one in use ended unasked
  kReleased,          // no companion is leaving any more
  kDeadline,          // the state's time is over
  kBaseEnded,         // ended, requeued, or purged
};
inline constexpr int kNumElasticEvents = 14;

enum class ElasticAction {
  kSubmitCompanions,  // of the open growth, one per node, those not submitted yet
  kSendOrder,         // of the open intent, by the agent's long poll
  kAdoptSize,         // what the agent reported is what the job holds
  kReleaseIntent,     // companions of the open growth leave
  kReleaseGivenBack,  // companions of the open shrink leave
  kReleaseUnused,     // companions the trainer does not use leave
  kReleaseAll,        // every companion leaves
  kFinishDone,        // the open intent ends as done, overhead measured
  kFinishRolledBack,  // the open intent ends without effect
  kFinishFailed,      // the open intent ends unconfirmed
  kCloseJob,          // the run's row gets its end
};

// "starting", "companions-pending" …: stored and shown. parse: kInvalidArgument names the text.
std::string_view elastic_state_name(ElasticState state);
Result<ElasticState> parse_elastic_state(std::string_view text);
std::string_view elastic_event_name(ElasticEvent event);
std::string_view elastic_action_name(ElasticAction action);

struct Transition {
  ElasticState next = ElasticState::kStarting;
  std::vector<ElasticAction> actions;  // in this order
};

// Defined for every pair; an event that means nothing in a state leaves it without actions.
Transition elastic_transition(ElasticState state, ElasticEvent event);

// Whether an intent is open in this state, of which kind, and whether its order is with the agent.
bool growing(ElasticState state);   // companions-pending, switching
bool ordered(ElasticState state);   // switching, shrinking
bool finished(ElasticState state);  // ending, ended

}  // namespace flextrain::slurm_plugin
