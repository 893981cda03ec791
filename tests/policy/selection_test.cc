// SPDX-License-Identifier: MIT
#include "policy/selection.h"

#include <numeric>

#include "policy/throughput.h"
#include "tests/policy/builders.h"

namespace flextrain::policy {
namespace {

using Offers = std::vector<NodeOffer>;

// Nodes by letter.
std::string chosen(const Offers& offers, int gpus) {
  std::vector<IndexedOffer> indexed;
  for (const NodeOffer& offer : offers) indexed.push_back({offer.node[0], offer.gpus});
  const auto take = choose_nodes(indexed, gpus);
  if (!take) return "none";
  std::string out;
  for (const IndexedOffer& offer : *take)
    out += (out.empty() ? "" : " ") + std::string(1, static_cast<char>(offer.node)) + ":" +
           std::to_string(offer.gpus);
  return out;
}

TEST(ChooseNodes, Table) {
  struct Case {
    const char* name;
    Offers offers;
    int gpus;
    const char* expected;
  };
  const Case cases[] = {
      {"one whole node", {{"a", 8}, {"b", 8}}, 8, "a:8"},
      {"fewest nodes", {{"a", 2}, {"b", 2}, {"c", 4}}, 4, "c:4"},
      {"two whole nodes", {{"a", 8}, {"b", 4}, {"c", 8}}, 16, "a:8 c:8"},
      {"part of the smallest that covers the rest", {{"a", 8}, {"b", 8}, {"c", 4}}, 11, "a:8 c:3"},
      {"whole nodes instead of a part", {{"a", 8}, {"b", 5}, {"c", 5}}, 10, "b:5 c:5"},
      {"no more nodes for the sake of wholeness", {{"a", 8}, {"b", 2}, {"c", 3}}, 5, "a:5"},
      {"part of one node", {{"a", 8}}, 3, "a:3"},
      {"not covered", {{"a", 8}, {"b", 3}}, 12, "none"},
      {"nothing there", {}, 1, "none"},
      {"empty offers", {{"a", 0}}, 1, "none"},
      {"nothing wanted", {{"a", 8}}, 0, ""},
  };
  for (const Case& c : cases) EXPECT_EQ(chosen(c.offers, c.gpus), c.expected) << c.name;
}

TEST(ExactSubset, Table) {
  EXPECT_EQ(exact_subset({8, 8, 4}, 12)->size(), 2u);
  EXPECT_EQ(exact_subset({1, 1, 2, 4}, 4), (std::vector<size_t>{3})) << "as few as possible";
  EXPECT_EQ(exact_subset({8, 8}, 4), std::nullopt);
  EXPECT_EQ(exact_subset({8}, 0)->size(), 0u);
  EXPECT_EQ(exact_subset({8}, -1), std::nullopt);
  EXPECT_EQ(exact_subset({2, 2, 2}, 6, 2), std::nullopt) << "at most two";
  EXPECT_EQ(exact_subset({2, 5, 2, 3}, 5, 2), (std::vector<size_t>{1}));
  EXPECT_EQ(exact_subset({4, 1, 4, 4}, 8), (std::vector<size_t>{0, 2})) << "the first of a size";
}

TEST(ExactSubset, AgainstAllSubsets) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::vector<int> sizes;
    for (unsigned i = 0; i < 1 + seed % 6; ++i) sizes.push_back(1 + (seed * 7 + i * i * 5) % 9);
    for (int sum = 0; sum <= 30; ++sum) {
      int fewest = -1;
      for (unsigned mask = 0; mask < 1u << sizes.size(); ++mask) {
        int total = 0;
        for (size_t i = 0; i < sizes.size(); ++i)
          if (mask >> i & 1) total += sizes[i];
        const int count = __builtin_popcount(mask);
        if (total == sum && (fewest < 0 || count < fewest)) fewest = count;
      }
      const auto found = exact_subset(sizes, sum);
      ASSERT_EQ(found ? static_cast<int>(found->size()) : -1, fewest);
      if (!found) continue;
      int total = 0;
      for (const size_t i : *found) total += sizes[i];
      ASSERT_EQ(total, sum);
    }
  }
}

TEST(KeepBest, Table) {
  ElasticJobView job = elastic(1, 4);  // entries 4, 8, 12, 16
  const auto kept = [&](std::vector<int> sizes) {
    std::vector<CompanionView> companions;
    for (size_t i = 0; i < sizes.size(); ++i)
      companions.push_back(
          {static_cast<uint32_t>(10 + i), "n" + std::to_string(i), sizes[i], false});
    int sum = 0;
    for (const CompanionView& companion : keep_best(job, companions)) sum += companion.gpus;
    return sum;
  };
  EXPECT_EQ(kept({8}), 8);
  EXPECT_EQ(kept({4, 4, 4}), 12);
  EXPECT_EQ(kept({6}), 0) << "10 is no entry and 8 cannot be made";
  EXPECT_EQ(kept({6, 4}), 4);
  EXPECT_EQ(kept({}), 0);
  job.table = {{4, 1000}, {8, 900}};
  EXPECT_EQ(kept({4}), 0) << "slower than the base";
  job.table.clear();
  EXPECT_EQ(kept({4}), 0) << "without a table only the base is known to work";
}

TEST(Throughput, BetweenAndOutsideEntries) {
  const std::vector<TableEntry> table = {{4, 1000}, {8, 1800}};
  EXPECT_EQ(tokens_per_second(table, 4), 1000);
  EXPECT_EQ(tokens_per_second(table, 7), 1000);
  EXPECT_EQ(tokens_per_second(table, 8), 1800);
  EXPECT_EQ(tokens_per_second(table, 99), 1800);
  EXPECT_EQ(tokens_per_second(table, 2), 500);
  EXPECT_EQ(tokens_per_second({}, 2), 0);
}

}  // namespace
}  // namespace flextrain::policy
