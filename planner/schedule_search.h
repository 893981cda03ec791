// SPDX-License-Identifier: MIT
// Searching a pipeline's schedule for given costs and memory caps. Pure: the budget is a number of
// expansions, or a clock that the caller injects.
//
// Two methods. Both start from the best closed form that keeps the caps, so their result is never
// worse than that, and both judge by the checker's simulation with rendezvous sends.
// - Depth-first: FlexTrain's Algorithm 1. Ready computations in topological order through a
// priority
//   queue; one whose stage would exceed its memory, or that cannot lead to an earlier end than the
//   best known, is pruned; on failure back up.
// - Best-first, anytime: a node is a list schedule with some of its choices made differently; the
//   node with the smallest bound is expanded first, into one child per later choice that leaves a
//   bound below the best makespan.
// A depth-first search that has tried everything proves a lower bound: the best-first search lets
// one try where there is little to try.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "planner/schedule_family.h"

namespace flextrain::planner {

enum class SearchMethod { kDepthFirst, kBestFirst };

struct SearchOptions {
  SearchMethod method = SearchMethod::kBestFirst;
  int64_t max_expansions = 2000;      // computations placed (depth-first), nodes (best-first)
  std::function<bool()> out_of_time;  // asked now and then; empty = never
};

struct SearchProgress {
  int64_t expansions = 0;
  double makespan = 0, lower_bound = 0;  // best known after so many
};

struct SearchResult {
  MadeSchedule best;  // family kSearched when it beats every closed form, else that form's
  int64_t expansions = 0;
  bool optimal = false;                  // its makespan is the lower bound, best.lower_bound
  bool exhausted = false;                // nothing left to try within the method's choices
  std::vector<SearchProgress> progress;  // first the closed form, then each improvement
};

// Deterministic unless out_of_time says otherwise. Errors as make_schedule's.
Result<SearchResult> search_schedule(const PipelineCosts& costs, const SearchOptions& options);

// "makespan 27 (lower bound 26, gap 3.8 %) after 24 expansions, searched".
std::string search_summary(const SearchResult& result);

}  // namespace flextrain::planner
