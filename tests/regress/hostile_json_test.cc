// SPDX-License-Identifier: MIT
// What went wrong, each found by looking for what one user with a good credential can do to
// slurmctld:
// - A message of a million nested lists overflowed the stack when it was copied: any user's
//   credential ended slurmctld.
// - A message of 16 MiB of "{}," became 430 MiB.
// - A Plan of one stage with many ranks and layers made validate_plan insert ranks x layers times.
// - GPUs of an order were summed up in an int.
// - flextrain.conf with many lines took their number squared.
// - A host list with brackets in brackets' place: empty ones never ended, padded numbers of a
//   million digits took 64 GiB, thousands of brackets recursed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/key_value_config.h"
#include "planner/plan.h"
#include "protocol/framing.h"
#include "slurm_plugin/controller/node_list.h"
#include "tests/protocol/endpoint_fixture.h"

namespace flextrain::protocol {
namespace {

std::string nested(size_t levels) {
  return R"({"version":1,"type":"query","nonce":"n","body":)" + std::string(levels, '[') +
         std::string(levels, ']') + "}";
}

std::string as_body(const std::string& text) {
  std::string body;
  const size_t count = (text.size() + kChunkBytes - 1) / kChunkBytes;
  for (size_t i = 0; i < count; ++i) {
    body += (i == 0 ? "" : "\n") +
            *user(1001)->encode(fmt::format("flextrain-chunk id {} {}\n{}", i, count,
                                            text.substr(i * kChunkBytes, kChunkBytes)));
  }
  return body;
}

TEST(HostileJson, DeepNestingDoesNotOverflowTheStack) {
  std::atomic<int> handled{0};
  const auto server = start([&](const Envelope&, const Caller&, const ReplyPtr& reply) {
    ++handled;
    reply->send({});
  });
  for (const size_t levels : {size_t{1000}, size_t{1'000'000}}) {
    EXPECT_THAT(raw_exchange(server->port(), http_post("/v1/query", as_body(nested(levels)))),
                HasSubstr(" 400 "));
  }
  EXPECT_EQ(handled, 0);
  EXPECT_TRUE(client(server->port())->call(request()).ok());
  EXPECT_TRUE(envelope_from_text(nested(50)).ok());
  EXPECT_EQ(envelope_from_text(nested(200)).status().code(), StatusCode::kDataLoss);
}

TEST(HostileJson, BracketsInTextAreText) {
  Envelope message = request();
  message.nonce = "n";
  message.body = std::string(1000, '[') + "\"\\" + std::string(1000, '{');
  EXPECT_TRUE(envelope_from_text(envelope_to_text(message)).ok());
}

TEST(HostileJson, ManySmallPartsAreTooMuchMemory) {
  std::string text = R"({"version":1,"type":"query","nonce":"n","body":[{})";
  while (text.size() < (size_t{12} << 20)) text += ",{}";
  EXPECT_EQ(envelope_from_text(text + "]}").status().code(), StatusCode::kResourceExhausted);
}

TEST(HostileJson, GpusOfAnOrderDoNotOverflow) {
  Order order;
  order.kind = OrderKind::kGrow;
  order.order_id = "o";
  for (uint32_t i = 0; i < 4096; ++i) order.allocations.push_back({i, "h", 1 << 20, ""});
  EXPECT_TRUE(from_json<Order>(to_json(order)).ok()) << "2^32 would be none at all";
}

TEST(HostilePlan, RanksTimesLayersIsNotWorkedThrough) {
  constexpr int kLayers = 1024, kRanks = 200'000;
  planner::Plan plan;
  plan.numerics = planner::Numerics::kFp32;
  plan.num_transformer_layers = kLayers;
  planner::Stage stage;
  stage.shard_units = kRanks;
  stage.chunks.emplace_back();
  for (int layer = 0; layer < kLayers + 2; ++layer) {
    stage.chunks[0].push_back(layer);
    plan.reduce_groups.push_back({layer, {0}});
  }
  for (int rank = 0; rank < kRanks; ++rank) stage.ranks.push_back({rank, rank, rank + 1});
  plan.recompute.assign(kLayers + 2, planner::Recompute::kNone);
  plan.pipelines.push_back({{stage}, 1});
  const auto begin = Clock::now();
  EXPECT_THAT(planner::validate_plan(plan).message(), HasSubstr("reduce group of layer 0"));
  EXPECT_LT(Clock::now() - begin, 20s);  // 200 million insertions take minutes
}

TEST(HostileConfig, ManyLinesAreReadInOneGo) {
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += fmt::format("Key{}=1\n", i);
  const auto begin = Clock::now();
  EXPECT_TRUE(parse_key_value_config(text, "flextrain.conf").ok());
  EXPECT_LT(Clock::now() - begin, 20s);
  EXPECT_THAT(parse_key_value_config(text + "kEy7=2", "f").status().message(),
              HasSubstr("f:100001: kEy7 is set again (first on line 8)"));
}

TEST(HostileHostList, EndsAndStaysSmall) {
  using slurm_plugin::expand_host_list;
  std::string many = "n[0-60000";
  for (int i = 0; i < 1000; ++i) many += ",0-60000";
  std::string brackets = "n";
  for (int i = 0; i < 100'000; ++i) brackets += "[1]";
  for (const std::string& text :
       {std::string("n[0-60000][0-60000][]"), many + "]", brackets,
        "n[0-60000,1" + std::string(100, '0') + "]", "n[" + std::string(1'000'000, '0') + "-60000]",
        std::string("n[]")}) {
    EXPECT_FALSE(expand_host_list(text).ok()) << text.substr(0, 60);
  }
  EXPECT_EQ(expand_host_list("n[001-003]x[1-2]")->size(), 6u);
}

}  // namespace
}  // namespace flextrain::protocol
