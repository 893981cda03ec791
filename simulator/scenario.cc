// SPDX-License-Identifier: MIT
#include "simulator/scenario.h"

#include <fmt/format.h>

namespace flextrain::simulator {
namespace {

struct Named {
  const char *name, *meaning;
  void (*apply)(ReplayOptions&);
};

policy::Parameters paper() { return *policy::parse_preset("flextrain-paper"); }

constexpr Named kScenarios[] = {
    {"rigid", "no elasticity", [](ReplayOptions& o) { o.elastic = false; }},
    {"flextrain-paper", "FlexTrain as published: printed gate, no guard",
     [](ReplayOptions& o) { o.policy = paper(); }},
    {"none", "the same without a gate",
     [](ReplayOptions& o) {
       o.policy = paper();
       o.policy.gate = policy::Gate::kNone;
     }},
    {"elasticflow", "no gate, no queue rule, GPUs to the largest marginal gain",
     [](ReplayOptions& o) {
       o.policy = paper();
       o.policy.gate = policy::Gate::kNone;
       o.policy.require_empty_queue = false;
       o.marginal_filling = true;
     }},
    {"recommended", "flextrain's defaults", [](ReplayOptions& o) { o.policy = {}; }},
    {"recommended-no-queue-rule", "RequireEmptyQueue=no",
     [](ReplayOptions& o) {
       o.policy = {};
       o.policy.require_empty_queue = false;
     }},
    {"oracle", "net benefit with the rigid run's future known",
     [](ReplayOptions& o) {
       o.policy = {};
       o.policy.gate = policy::Gate::kNetBenefit;
       o.oracle = true;
     }},
    {"frictionless", "no pause at all",
     [](ReplayOptions& o) {
       o.policy = {};
       o.policy.gate = policy::Gate::kNone;
       o.pause = {0, 0, 0};
       o.hand_over = 0;
     }},
};

}  // namespace

std::vector<std::string> scenario_names() {
  std::vector<std::string> names;
  for (const Named& named : kScenarios) names.emplace_back(named.name);
  return names;
}

Result<Scenario> make_scenario(std::string_view name, const ReplayOptions& common) {
  for (const Named& named : kScenarios) {
    if (name != named.name) continue;
    Scenario scenario{named.name, named.meaning, common};
    named.apply(scenario.options);
    return scenario;
  }
  return invalid_argument("'{}' is no policy; one of {}", name, fmt::join(scenario_names(), ", "));
}

std::vector<ScenarioRun> run_scenarios(const Trace& trace, const std::vector<Scenario>& scenarios,
                                       double warm_up, const std::function<double()>& clock,
                                       const std::function<void(double)>& progress) {
  std::vector<ScenarioRun> runs;
  size_t total = 1;
  for (const Scenario& scenario : scenarios) total += scenario.options.elastic ? 1 : 0;
  const auto run = [&](const std::string& name, const ReplayOptions& options,
                       const ReplayResult* base) {
    const double done = static_cast<double>(runs.size()) / static_cast<double>(total);
    const double begin = clock ? clock() : 0;
    ReplayResult result = replay(
        trace, options,
        [&](double share) {
          if (progress) progress(done + share / static_cast<double>(total));
        },
        base);
    runs.push_back({name, {}, std::move(result), clock ? clock() - begin : 0});
  };
  ReplayOptions rigid;
  if (!scenarios.empty()) rigid = scenarios.front().options;
  rigid.elastic = false;
  runs.reserve(total);  // `base` below stays where it is
  run("rigid", rigid, nullptr);
  for (const Scenario& scenario : scenarios)
    if (scenario.options.elastic) run(scenario.name, scenario.options, &runs.front().result);
  runs.front().measures = measure(trace, rigid, runs.front().result, runs.front().result, warm_up);
  for (size_t i = 1, at = 0; i < runs.size(); ++i, ++at) {
    while (!scenarios[at].options.elastic) ++at;
    runs[i].measures =
        measure(trace, scenarios[at].options, runs[i].result, runs.front().result, warm_up);
  }
  if (progress) progress(1);
  return runs;
}

}  // namespace flextrain::simulator
