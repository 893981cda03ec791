// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm_plugin/controller/elastic_job.h"

namespace flextrain::slurm_plugin {
namespace {

using S = ElasticState;
using E = ElasticEvent;
using A = ElasticAction;

constexpr std::string_view kStateNames[kNumElasticStates] = {
    "starting",  "steady",       "companions-pending", "switching", "shrinking",
    "releasing", "rolling-back", "recovering",         "ending",    "ended"};
constexpr std::string_view kEventNames[kNumElasticEvents] = {
    "agent-registered",  "agent-gone",  "grow-decided",  "shrink-decided", "companions-ready",
    "companions-failed", "switch-done", "switch-failed", "trainer-left",   "trainer-moved",
    "companion-lost",    "released",    "deadline",      "base-ended"};
constexpr std::string_view kActionNames[] = {
    "submit-companions",  "send-order",     "adopt-size",  "release-intent",
    "release-given-back", "release-unused", "release-all", "finish-done",
    "finish-rolled-back", "finish-failed",  "close-job"};

struct Row {
  S state;
  E event;
  S next;
  std::vector<A> actions;
};

// Every pair that does something. Pairs not listed leave the state as it is.
const std::vector<Row>& rows() {
  static const auto* table = new std::vector<Row>{
      {S::kStarting, E::kAgentRegistered, S::kSteady, {}},
      // Also the safety net for companions of an agent that never came back.
      {S::kStarting, E::kAgentGone, S::kStarting, {A::kReleaseAll}},
      {S::kStarting, E::kDeadline, S::kStarting, {A::kReleaseAll}},
      {S::kStarting, E::kBaseEnded, S::kEnding, {A::kReleaseAll}},

      {S::kSteady, E::kAgentGone, S::kStarting, {A::kReleaseAll}},
      {S::kSteady, E::kGrowDecided, S::kCompanionsPending, {A::kSubmitCompanions}},
      {S::kSteady, E::kShrinkDecided, S::kShrinking, {A::kSendOrder}},
      {S::kSteady, E::kTrainerMoved, S::kReleasing, {A::kAdoptSize, A::kReleaseUnused}},
      {S::kSteady, E::kCompanionLost, S::kRecovering, {}},
      {S::kSteady, E::kBaseEnded, S::kEnding, {A::kReleaseAll}},

      {S::kCompanionsPending, E::kAgentGone, S::kStarting, {A::kReleaseAll, A::kFinishRolledBack}},
      // Again after a restart between the intent and its last submission.
      {S::kCompanionsPending, E::kGrowDecided, S::kCompanionsPending, {A::kSubmitCompanions}},
      {S::kCompanionsPending, E::kCompanionsReady, S::kSwitching, {A::kSendOrder}},
      {S::kCompanionsPending,
       E::kCompanionsFailed,
       S::kRollingBack,
       {A::kReleaseIntent, A::kFinishRolledBack}},
      {S::kCompanionsPending,
       E::kDeadline,
       S::kRollingBack,
       {A::kReleaseIntent, A::kFinishRolledBack}},
      {S::kCompanionsPending,
       E::kTrainerMoved,
       S::kRollingBack,
       {A::kAdoptSize, A::kReleaseUnused, A::kFinishRolledBack}},
      {S::kCompanionsPending,
       E::kCompanionLost,
       S::kRecovering,
       {A::kReleaseIntent, A::kFinishRolledBack}},
      {S::kCompanionsPending, E::kBaseEnded, S::kEnding, {A::kReleaseAll, A::kFinishRolledBack}},

      {S::kSwitching, E::kAgentGone, S::kStarting, {A::kReleaseAll, A::kFinishFailed}},
      {S::kSwitching,
       E::kSwitchDone,
       S::kReleasing,
       {A::kAdoptSize, A::kReleaseUnused, A::kFinishDone}},
      {S::kSwitching,
       E::kSwitchFailed,
       S::kRollingBack,
       {A::kAdoptSize, A::kReleaseIntent, A::kReleaseUnused, A::kFinishRolledBack}},
      {S::kSwitching, E::kDeadline, S::kRollingBack, {A::kReleaseIntent, A::kFinishRolledBack}},
      // A report without the order's id while the order is out: the order's own report decides.
      {S::kSwitching, E::kTrainerMoved, S::kSwitching, {A::kAdoptSize}},
      {S::kSwitching, E::kBaseEnded, S::kEnding, {A::kReleaseAll, A::kFinishFailed}},

      {S::kShrinking, E::kAgentGone, S::kStarting, {A::kReleaseAll, A::kFinishFailed}},
      {S::kShrinking,
       E::kSwitchDone,
       S::kReleasing,
       {A::kAdoptSize, A::kReleaseGivenBack, A::kReleaseUnused, A::kFinishDone}},
      {S::kShrinking,
       E::kTrainerLeft,
       S::kShrinking,
       {A::kAdoptSize, A::kReleaseGivenBack, A::kReleaseUnused}},
      // The waiting job needs the GPUs all the same; the agent survives the loss of ranks.
      {S::kShrinking, E::kSwitchFailed, S::kReleasing, {A::kReleaseGivenBack, A::kFinishFailed}},
      {S::kShrinking, E::kDeadline, S::kReleasing, {A::kReleaseGivenBack, A::kFinishFailed}},
      {S::kShrinking, E::kTrainerMoved, S::kShrinking, {A::kAdoptSize}},
      {S::kShrinking, E::kBaseEnded, S::kEnding, {A::kReleaseAll, A::kFinishFailed}},

      {S::kReleasing, E::kAgentGone, S::kStarting, {A::kReleaseAll}},
      {S::kReleasing, E::kReleased, S::kSteady, {}},
      {S::kReleasing, E::kDeadline, S::kSteady, {}},
      {S::kReleasing, E::kTrainerMoved, S::kReleasing, {A::kAdoptSize, A::kReleaseUnused}},
      {S::kReleasing, E::kCompanionLost, S::kRecovering, {}},
      {S::kReleasing, E::kBaseEnded, S::kEnding, {A::kReleaseAll}},

      {S::kRollingBack, E::kAgentGone, S::kStarting, {A::kReleaseAll}},
      {S::kRollingBack, E::kReleased, S::kSteady, {}},
      {S::kRollingBack, E::kDeadline, S::kSteady, {}},
      {S::kRollingBack, E::kTrainerMoved, S::kRollingBack, {A::kAdoptSize, A::kReleaseUnused}},
      {S::kRollingBack, E::kCompanionLost, S::kRecovering, {}},
      {S::kRollingBack, E::kBaseEnded, S::kEnding, {A::kReleaseAll}},

      {S::kRecovering, E::kAgentGone, S::kStarting, {A::kReleaseAll}},
      {S::kRecovering, E::kTrainerMoved, S::kReleasing, {A::kAdoptSize, A::kReleaseUnused}},
      // No word of the agent: nothing may be held that perhaps nobody uses.
      {S::kRecovering, E::kDeadline, S::kReleasing, {A::kReleaseAll}},
      {S::kRecovering, E::kBaseEnded, S::kEnding, {A::kReleaseAll}},

      // A companion that does not go is an orphan from now on: the sweep cancels it at every tick.
      {S::kEnding, E::kReleased, S::kEnded, {A::kCloseJob}},
      {S::kEnding, E::kDeadline, S::kEnded, {A::kCloseJob}},
      {S::kEnding, E::kBaseEnded, S::kEnding, {A::kReleaseAll}},
  };
  return *table;
}

}  // namespace

std::string_view elastic_state_name(ElasticState state) {
  return kStateNames[static_cast<int>(state)];
}
std::string_view elastic_event_name(ElasticEvent event) {
  return kEventNames[static_cast<int>(event)];
}
std::string_view elastic_action_name(ElasticAction action) {
  return kActionNames[static_cast<int>(action)];
}

Result<ElasticState> parse_elastic_state(std::string_view text) {
  for (int state = 0; state < kNumElasticStates; ++state) {
    if (kStateNames[state] == text) return static_cast<ElasticState>(state);
  }
  return invalid_argument("'{}' is no state of an elastic job", text);
}

Transition elastic_transition(ElasticState state, ElasticEvent event) {
  for (const Row& row : rows()) {
    if (row.state == state && row.event == event) return {row.next, row.actions};
  }
  return {state, {}};
}

bool growing(ElasticState state) {
  return state == S::kCompanionsPending || state == S::kSwitching;
}
bool ordered(ElasticState state) { return state == S::kSwitching || state == S::kShrinking; }
bool finished(ElasticState state) { return state == S::kEnding || state == S::kEnded; }

}  // namespace flextrain::slurm_plugin
