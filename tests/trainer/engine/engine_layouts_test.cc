// SPDX-License-Identifier: MIT
// The promise of `exact`: losses, norms and every bit of the state are the same in every layout.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>

namespace {

struct Outcome {
  int code = -1;
  std::string text;
};

// Output of a program on `ranks` ranks.
Outcome run_program(int ranks, const std::string& program) {
  const std::string command =
      "mpirun --oversubscribe --allow-run-as-root --mca mpi_yield_when_idle 1 --bind-to none -n " +
      std::to_string(ranks) + " " + program + " 2>&1";
  Outcome outcome;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return outcome;
  std::array<char, 4096> buffer;
  while (const size_t n = fread(buffer.data(), 1, buffer.size(), pipe))
    outcome.text.append(buffer.data(), n);
  outcome.code = pclose(pipe);
  return outcome;
}

Outcome run_engine(int ranks, const std::string& options) {
  return run_program(ranks, FLEXTRAIN_ENGINE_RUN " " + options);
}

struct Layout {
  const char* name;
  int ranks;
  const char* job;     // what is trained: the same for the straight run
  const char* layout;  // on which layout
};
void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }

std::string expect_run(int ranks, const std::string& options) {
  const Outcome outcome = run_engine(ranks, options);
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_NE(outcome.text.find("state "), std::string::npos) << outcome.text;
  return outcome.text;
}

// What a run on one rank with these options prints; made once.
const std::string& straight_run(const std::string& options) {
  static std::map<std::string, std::string> runs;
  auto found = runs.find(options);
  if (found == runs.end()) found = runs.emplace(options, expect_run(1, options)).first;
  return found->second;
}

class EqualLayouts : public testing::TestWithParam<Layout> {};

TEST_P(EqualLayouts, PrintWhatOneRankPrints) {
  const Layout& layout = GetParam();
  EXPECT_EQ(expect_run(layout.ranks, std::string(layout.job) + " " + layout.layout),
            straight_run(layout.job));
}

std::string name_of(const testing::TestParamInfo<Layout>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(
    Exact, EqualLayouts,
    testing::Values(Layout{"PP2", 2, "", "pp=2"}, Layout{"PP3", 3, "", "pp=3"},
                    Layout{"PP5", 5, "", "pp=5"}, Layout{"DP2", 2, "", "dp=2"},
                    Layout{"DP3", 3, "", "dp=3"}, Layout{"PP2DP2", 4, "", "pp=2 dp=2"},
                    Layout{"GPipePP3", 3, "", "pp=3 schedule=gpipe"},
                    Layout{"GPipePP2DP2", 4, "", "pp=2 dp=2 schedule=gpipe"},
                    Layout{"PP2V2", 2, "", "pp=2 v=2"}, Layout{"PP2DP3V2", 6, "", "pp=2 dp=3 v=2"},
                    Layout{"Recompute", 1, "", "recompute=1"},
                    Layout{"RecomputePP2", 2, "", "pp=2 recompute=1"},
                    Layout{"MemoryMinPP3", 3, "", "pp=3 schedule=memory-min"},
                    Layout{"ZeroBubblePP3", 3, "", "pp=3 schedule=zb-1p"},
                    Layout{"ZeroBubblePP2DP2V2", 4, "", "pp=2 dp=2 v=2 schedule=zb-1p"},
                    Layout{"ZeroBubbleRecompute", 2, "", "pp=2 schedule=zb-1p recompute=1"},
                    Layout{"VShapePP2", 2, "", "pp=2 v=2 schedule=v-shape"},
                    Layout{"VShapePP3DP2", 6, "", "pp=3 dp=2 v=2 schedule=v-shape"},
                    Layout{"VShapeRecompute", 4, "", "pp=4 v=2 schedule=v-shape recompute=1"},
                    Layout{"SplitPP3", 3, "", "pp=3 split=1"},
                    Layout{"SplitPP2DP2V2", 4, "", "pp=2 dp=2 v=2 split=1"},
                    Layout{"SplitGPipeRecompute", 2, "", "pp=2 schedule=gpipe split=1 recompute=1"},
                    Layout{"RecomputeActions", 3, "", "pp=3 split=2 recompute=1"},
                    Layout{"AsymmetricPP2AndPP1", 3, "", "pp=2 second_pp=1"},
                    Layout{"AsymmetricPP1AndPP3", 4, "", "pp=1 second_pp=3"}),
    name_of);

INSTANTIATE_TEST_SUITE_P(
    ExactTiedHead, EqualLayouts,
    testing::Values(Layout{"PP2", 2, "tied=1", "pp=2"}, Layout{"PP3", 3, "tied=1", "pp=3"},
                    Layout{"SplitPP2", 2, "tied=1", "pp=2 split=1"},
                    Layout{"VShapePP2", 2, "tied=1", "pp=2 v=2 schedule=v-shape"},
                    Layout{"DP2", 2, "tied=1", "dp=2"}, Layout{"PP2DP2", 4, "tied=1", "pp=2 dp=2"},
                    Layout{"Asymmetric", 3, "tied=1", "pp=2 second_pp=1"}),
    name_of);

// Heads of multi-token prediction share the embedding's and the head's matrix with ranks that hold
// neither; two of them on five layers leave a stage with a loss alone.
INSTANTIATE_TEST_SUITE_P(
    ExactMtp, EqualLayouts,
    testing::Values(Layout{"PP2", 2, "mtp=1", "pp=2"}, Layout{"PP6", 6, "mtp=2", "pp=6"},
                    Layout{"PP2DP2V2", 4, "mtp=2", "pp=2 dp=2 v=2"},
                    Layout{"TiedPP3", 3, "mtp=2 tied=1", "pp=3"},
                    Layout{"PaddedDP2", 2, "mtp=2 padding=1", "dp=2"},
                    Layout{"ZeroBubblePP3", 3, "mtp=2", "pp=3 schedule=zb-1p recompute=1"},
                    Layout{"VShapePP2DP2", 4, "mtp=2", "pp=2 dp=2 v=2 schedule=v-shape"}),
    name_of);

// More stages than layers: some only pass on.
INSTANTIATE_TEST_SUITE_P(
    ExactEmptyStages, EqualLayouts,
    testing::Values(Layout{"PP4", 4, "layers=2", "pp=4"},
                    Layout{"ZeroBubblePP5", 5, "layers=2", "pp=5 schedule=zb-1p recompute=1"},
                    Layout{"VShapePP4", 4, "layers=2", "pp=4 v=2 schedule=v-shape"},
                    Layout{"MtpPP6", 6, "layers=2 mtp=1", "pp=6 schedule=memory-min"}),
    name_of);

// Padding makes the denominator a count over all ranks; seven layers divide by nothing here.
INSTANTIATE_TEST_SUITE_P(
    ExactPadded, EqualLayouts,
    testing::Values(Layout{"PP3", 3, "layers=7 mbs=2 batch=12 padding=1 steps=3", "pp=3"},
                    Layout{"PP2DP3", 6, "layers=7 mbs=2 batch=12 padding=1 steps=3", "pp=2 dp=3"}),
    name_of);

// S = 66 is too large for these gradients: every rank must find the same lower one.
INSTANTIATE_TEST_SUITE_P(ExactSaturated, EqualLayouts,
                         testing::Values(Layout{"PP2", 2, "scale=66", "pp=2"},
                                         Layout{"PP2DP2", 4, "scale=66", "pp=2 dp=2"}),
                         name_of);

INSTANTIATE_TEST_SUITE_P(
    Fp32, EqualLayouts,
    testing::Values(Layout{"PP2", 2, "numerics=fp32", "pp=2"},
                    Layout{"PP3", 3, "numerics=fp32", "pp=3"},
                    Layout{"PP5", 5, "numerics=fp32", "pp=5"},
                    Layout{"GPipePP3", 3, "numerics=fp32", "pp=3 schedule=gpipe"},
                    Layout{"PP2V2", 2, "numerics=fp32", "pp=2 v=2"},
                    Layout{"VShapePP2", 2, "numerics=fp32", "pp=2 v=2 schedule=v-shape"},
                    Layout{"SplitPP3", 3, "numerics=fp32", "pp=3 split=1"},
                    Layout{"TiedPP3", 3, "numerics=fp32 tied=1", "pp=3"}),
    name_of);

// Any two of {schedule, pipeline degree, virtual stages, recomputation, MTP depths, data
// parallelism} meet; the program compares and prints.
TEST(ScheduleCover, EveryPairOfChoicesGivesOneRanksBits) {
  const Outcome outcome = run_program(6, FLEXTRAIN_SCHEDULE_COVER);
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  std::printf("%s", outcome.text.c_str());
  size_t equal = 0;
  for (size_t at = 0; (at = outcome.text.find("| equal |", at)) != std::string::npos; ++at) ++equal;
  EXPECT_GE(equal, 18u);  // six schedules times three recomputations
}

// The scale really falls in the saturated runs, and the losses stay those of a fit scale's steps up
// to rounding: the first loss is made before any gradient and must be equal.
TEST(Saturation, LowersTheScaleAndOnlyIt) {
  const std::string& text = straight_run("scale=66");
  EXPECT_EQ(text.find("scale 66"), std::string::npos) << text;
  EXPECT_NE(text.find("scale 58"), std::string::npos) << text;
  EXPECT_EQ(text.substr(0, text.find(" norm")),
            straight_run("").substr(0, straight_run("").find(" norm")));
}

TEST(Fp32, DiffersFromExactButLittle) {
  const std::string &exact = straight_run(""), &fp32 = straight_run("numerics=fp32");
  EXPECT_NE(exact, fp32);
  const auto eval = [](const std::string& text) {
    return std::strtod(text.c_str() + text.find("eval ") + 5, nullptr);
  };
  EXPECT_NEAR(eval(exact), eval(fp32), 1e-3);
}

// Four layouts one after the other, each from the state of the one before.
TEST(RestartChain, EndsWithTheStraightRunsState) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("engine-chain-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  const std::string straight = straight_run("steps=8");
  const struct {
    int ranks;
    const char* layout;
  } chain[] = {{1, ""}, {6, "pp=3 dp=2"}, {3, "dp=3"}, {2, "pp=2 v=2 schedule=gpipe"}};
  std::string losses, last;
  for (int part = 0; part < 4; ++part) {
    std::string options = std::string(chain[part].layout) +
                          " steps=2 begin=" + std::to_string(2 * part) +
                          " save=" + (folder / std::to_string(part)).string();
    if (part > 0) options += " load=" + (folder / std::to_string(part - 1)).string();
    last = expect_run(chain[part].ranks, options);
    losses += last.substr(0, last.find("eval"));
  }
  EXPECT_EQ(losses + last.substr(last.find("eval")), straight);
  std::filesystem::remove_all(folder);
}

}  // namespace
