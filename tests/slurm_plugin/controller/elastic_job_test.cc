// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm_plugin/controller/elastic_job.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace flextrain::slurm_plugin {
namespace {

using S = ElasticState;
using E = ElasticEvent;
using A = ElasticAction;

// The next state of every pair, a row per state, a column per event in the order of the enum:
// registered, gone, grow, shrink, ready, failed, done, switch-failed, left, moved, lost, released,
// deadline, ended. '.' = stays.
struct TableRow {
  S state;
  const char* next;
};
// s starting, S steady, p companions-pending, w switching, k shrinking, r releasing,
// b rolling-back, v recovering, e ending, E ended
constexpr TableRow kTable[] = {
    {S::kStarting, "S............e"},
    {S::kSteady, ".spk.....rv..e"},
    {S::kCompanionsPending, ".s..wb...bv.be"},
    {S::kSwitching, ".s....rb....be"},
    {S::kShrinking, ".s....rr....re"},
    {S::kReleasing, ".s........vSSe"},
    {S::kRollingBack, ".s........vSSe"},
    {S::kRecovering, ".s.......r..re"},
    {S::kEnding, "...........EE."},
    {S::kEnded, ".............."},
};
constexpr char kLetters[] = "sSpwkrbveE";

TEST(ElasticJob, EveryPairOfStateAndEventIsAsTheTableSays) {
  std::set<S> seen;
  for (const TableRow& row : kTable) {
    seen.insert(row.state);
    for (int event = 0; event < kNumElasticEvents; ++event) {
      const char letter = row.next[event];
      const S expected =
          letter == '.' ? row.state
                        : static_cast<S>(std::find(kLetters, kLetters + 10, letter) - kLetters);
      EXPECT_EQ(elastic_transition(row.state, static_cast<E>(event)).next, expected)
          << elastic_state_name(row.state) << " / " << elastic_event_name(static_cast<E>(event));
    }
  }
  EXPECT_EQ(seen.size(), static_cast<size_t>(kNumElasticStates));
}

bool has(const std::vector<A>& actions, A action) {
  return std::find(actions.begin(), actions.end(), action) != actions.end();
}

TEST(ElasticJob, LeavingAStateWithAnOpenIntentFinishesItExactlyOnce) {
  for (int state = 0; state < kNumElasticStates; ++state) {
    const auto from = static_cast<S>(state);
    const bool open = growing(from) || from == S::kShrinking;
    for (int event = 0; event < kNumElasticEvents; ++event) {
      const Transition step = elastic_transition(from, static_cast<E>(event));
      const bool still = growing(step.next) || step.next == S::kShrinking;
      const int finishes = has(step.actions, A::kFinishDone) +
                           has(step.actions, A::kFinishRolledBack) +
                           has(step.actions, A::kFinishFailed);
      EXPECT_EQ(finishes, open && !still ? 1 : 0)
          << elastic_state_name(from) << " / " << elastic_event_name(static_cast<E>(event));
    }
  }
}

TEST(ElasticJob, IntentIsUsedBeforeItIsFinished) {
  for (int state = 0; state < kNumElasticStates; ++state) {
    for (int event = 0; event < kNumElasticEvents; ++event) {
      const auto actions = elastic_transition(static_cast<S>(state), static_cast<E>(event)).actions;
      bool finished_intent = false;
      for (const A action : actions) {
        if (action == A::kReleaseIntent || action == A::kReleaseGivenBack) {
          EXPECT_FALSE(finished_intent);
        }
        finished_intent = finished_intent || action == A::kFinishDone ||
                          action == A::kFinishRolledBack || action == A::kFinishFailed;
      }
    }
  }
}

TEST(ElasticJob, NothingIsHeldOnceTheBaseOrItsAgentIsGone) {
  for (int state = 0; state < kNumElasticStates; ++state) {
    const auto from = static_cast<S>(state);
    if (!finished(from)) {
      EXPECT_TRUE(has(elastic_transition(from, E::kBaseEnded).actions, A::kReleaseAll));
      EXPECT_TRUE(has(elastic_transition(from, E::kAgentGone).actions, A::kReleaseAll));
    }
  }
}

TEST(ElasticJob, EveryStateReachesTheEndAndSteadyIsReachableAgain) {
  for (int state = 0; state < kNumElasticStates; ++state) {
    S at = elastic_transition(static_cast<S>(state), E::kBaseEnded).next;
    at = elastic_transition(at, E::kReleased).next;
    EXPECT_EQ(at, S::kEnded);
    // Whatever hangs, deadlines alone lead out of every transitional state.
    at = static_cast<S>(state);
    for (int step = 0; step < 4 && !finished(at); ++step) {
      at = elastic_transition(at, E::kDeadline).next;
    }
    EXPECT_TRUE(at == S::kSteady || at == S::kStarting || finished(at)) << elastic_state_name(at);
  }
}

TEST(ElasticJob, NamesReadBack) {
  for (int state = 0; state < kNumElasticStates; ++state) {
    const auto one = static_cast<S>(state);
    EXPECT_EQ(parse_elastic_state(elastic_state_name(one)).value(), one);
  }
  EXPECT_FALSE(parse_elastic_state("lost").ok());
}

}  // namespace
}  // namespace flextrain::slurm_plugin
