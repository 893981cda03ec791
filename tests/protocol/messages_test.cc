// SPDX-License-Identifier: MIT
#include "protocol/messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

namespace flextrain::protocol {
namespace {

using ::testing::HasSubstr;

TEST(Messages, EnvelopeRoundTrip) {
  Envelope m;
  m.type = "poll";
  m.nonce = "abc";
  m.controller_epoch = 7;
  m.sequence = 9;
  m.job = {"fx", 12, 1700000000, 2};
  m.error = "no";
  m.body = {{"x", 1}};
  const auto back = from_json<Envelope>(to_json(m));
  ASSERT_TRUE(back.ok()) << back.status().to_string();
  EXPECT_EQ(back->type, "poll");
  EXPECT_EQ(back->nonce, "abc");
  EXPECT_EQ(back->controller_epoch, 7);
  EXPECT_EQ(back->sequence, 9);
  EXPECT_EQ(back->job, m.job);
  EXPECT_EQ(back->error, "no");
  EXPECT_EQ(back->body, m.body);
}

TEST(Messages, RegisterRoundTrip) {
  RegisterRequest m;
  m.role = AgentRole::kCompanion;
  m.base_job_id = 4294967295U;
  m.intent_id = "i1";
  m.allocations = {{12, "n1", 2, "10.0.0.1"}, {13, "n2", 8, ""}};
  m.fingerprint = "f";
  m.numerics = "fp32";
  m.agent_version = "0.1";
  m.fingerprint_command = {"a", "b c"};
  m.agent_path = "/x";
  m.work_dir = "/w";
  m.environment = {{"A", "1"}, {"B", ""}};
  m.rlimits = {{"RLIMIT_NOFILE", 1024}, {"RLIMIT_CORE", -1}};
  m.umask = 077;
  const auto back = from_json<RegisterRequest>(to_json(m));
  ASSERT_TRUE(back.ok()) << back.status().to_string();
  EXPECT_EQ(to_json(*back), to_json(m));
  EXPECT_EQ(back->allocations, m.allocations);
}

TEST(Messages, OrderReportProgressRoundTrip) {
  Order order{OrderKind::kGrow, "o1", {{1, "n1", 2, ""}}, {{"version", 1}}, 60};
  EXPECT_EQ(to_json(*from_json<Order>(to_json(order))), to_json(order));
  ReportRequest report{"o1", true, "", {1, 2, 3, 4, 5, 15}, 4, {{1, "n1", 4, ""}}};
  EXPECT_EQ(to_json(*from_json<ReportRequest>(to_json(report))), to_json(report));
  ProgressRequest progress{5, 10, std::nan(""), 3.5, 0.25, 2, "p", "running"};
  const auto back = from_json<ProgressRequest>(to_json(progress));
  ASSERT_TRUE(back.ok());
  EXPECT_TRUE(std::isnan(back->loss));
  EXPECT_EQ(back->tokens_per_second, 3.5);
  const auto poll = from_json<PollRequest>(to_json(PollRequest{7, progress}));
  ASSERT_TRUE(poll.ok() && poll->progress);
  EXPECT_EQ(poll->progress->step, 5);
  EXPECT_FALSE(from_json<PollRequest>(to_json(PollRequest{7, {}}))->progress);
  EXPECT_FALSE(from_json<PollRequest>(Json{{"progress", {{"step", -1}}}}).ok());
}

TEST(Messages, MissingFieldsKeepDefaultsAndUnknownOnesAreSkipped) {
  const auto response = from_json<RegisterResponse>(Json{{"elastic", true}, {"from_2031", {1}}});
  ASSERT_TRUE(response.ok());
  EXPECT_TRUE(response->elastic);
  EXPECT_EQ(response->poll_seconds, 25);
}

struct BadCase {
  const char* name;
  std::function<Status()> decode;
  const char* message;
};

template <typename Message>
std::function<Status()> decoding(const char* text) {
  return [text] { return from_json<Message>(Json::parse(text)).status(); };
}

TEST(Messages, RefusesWrongTypesAndBounds) {
  const BadCase cases[] = {
      {"not an object", decoding<Envelope>("[]"), "is not a JSON object"},
      {"no version", decoding<Envelope>("{}"), "version"},
      {"version 0", decoding<Envelope>(R"({"version":0})"), "version"},
      {"text as number", decoding<Envelope>(R"({"version":1,"type":5})"), "'type' is not a string"},
      {"negative epoch", decoding<Envelope>(R"({"version":1,"controller_epoch":-1})"), "outside"},
      {"huge epoch", decoding<Envelope>(R"({"version":1,"controller_epoch":18446744073709551615})"),
       "out of range"},
      {"float epoch", decoding<Envelope>(R"({"version":1,"controller_epoch":1.5})"),
       "is not a whole number"},
      {"job is a list", decoding<Envelope>(R"({"version":1,"job":[]})"), "'job' is not an object"},
      {"job id too large", decoding<Envelope>(R"({"version":1,"job":{"job_id":4294967296}})"),
       "job_id"},
      {"role", decoding<RegisterRequest>(R"({"role":"king"})"), "king"},
      {"numerics", decoding<RegisterRequest>(R"({"numerics":"fast"})"), "numerics"},
      {"umask", decoding<RegisterRequest>(R"({"umask":512})"), "umask"},
      {"NUL in a path", decoding<RegisterRequest>(R"({"work_dir":"a\u0000b"})"), "NUL"},
      {"environment value", decoding<RegisterRequest>(R"({"environment":{"A":1}})"),
       "'A' is not a string"},
      {"environment name", decoding<RegisterRequest>(R"({"environment":{"A=B":"1"}})"), "unusable"},
      {"allocation without host", decoding<RegisterRequest>(R"({"allocations":[{"gpus":1}]})"),
       "allocations[0]"},
      {"negative gpus", decoding<RegisterRequest>(R"({"allocations":[{"host":"n1","gpus":-1}]})"),
       "gpus"},
      {"order kind", decoding<Order>(R"({"kind":"explode"})"), "explode"},
      {"grow of nothing", decoding<Order>(R"({"kind":"grow","order_id":"x"})"), "allocations"},
      {"grow without id",
       decoding<Order>(R"({"kind":"grow","allocations":[{"host":"n1","gpus":1}]})"), "order_id"},
      {"grow to 0 GPUs",
       decoding<Order>(R"({"kind":"grow","order_id":"x","allocations":[{"host":"n1","gpus":0}]})"),
       "no GPU"},
      {"timeout 0", decoding<Order>(R"({"timeout_seconds":0})"), "timeout_seconds"},
      {"negative phase", decoding<ReportRequest>(R"({"phases":{"save":-1}})"), "save"},
      {"query of nothing", decoding<QueryRequest>("{}"), "what"},
      {"exit code", decoding<ByeRequest>(R"({"exit_code":999})"), "exit_code"},
  };
  for (const BadCase& c : cases) {
    const Status status = c.decode();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << c.name;
    EXPECT_THAT(status.message(), HasSubstr(c.message)) << c.name;
  }
}

TEST(Messages, OversizedTextIsRefused) {
  Json json = {{"work_dir", std::string(5000, 'x')}};
  EXPECT_FALSE(from_json<RegisterRequest>(json).ok());
  Json many = {{"allocations", Json::array()}};
  for (int i = 0; i < 70000; ++i) many["allocations"].push_back({{"host", "n"}, {"gpus", 1}});
  EXPECT_FALSE(from_json<RegisterRequest>(many).ok());
}

// Random JSON never crashes or throws; what decodes encodes again.
TEST(Messages, RandomJsonIsHandled) {
  std::mt19937 random(1);
  const std::vector<std::string> keys = {
      "version", "type",     "nonce", "job",    "body", "kind",  "gpus",  "host",
      "plan",    "order_id", "role",  "phases", "loss", "umask", "error", "allocations"};
  std::function<Json(int)> any = [&](int depth) -> Json {
    switch (random() % (depth > 3 ? 6 : 8)) {
      case 0:
        return nullptr;
      case 1:
        return static_cast<int64_t>(random()) - (1LL << 31);
      case 2:
        return random() % 2 == 0;
      case 3:
        return "text";
      case 4:
        return 1e300;
      case 5:
        return UINT64_MAX;
      case 6: {
        Json list = Json::array();
        for (unsigned i = random() % 4; i > 0; --i) list.push_back(any(depth + 1));
        return list;
      }
      default: {
        Json object = Json::object();
        for (unsigned i = random() % 6; i > 0; --i)
          object[keys[random() % keys.size()]] = any(depth + 1);
        return object;
      }
    }
  };
  for (int i = 0; i < 20000; ++i) {
    const Json json = any(0);
    if (auto m = from_json<Envelope>(json); m.ok()) {
      EXPECT_TRUE(from_json<Envelope>(to_json(*m)).ok());
    }
    if (auto m = from_json<Order>(json); m.ok()) {
      EXPECT_TRUE(from_json<Order>(to_json(*m)).ok());
    }
    if (auto m = from_json<RegisterRequest>(json); m.ok()) {
      EXPECT_TRUE(from_json<RegisterRequest>(to_json(*m)).ok());
    }
    if (auto m = from_json<ReportRequest>(json); m.ok()) {
      EXPECT_TRUE(from_json<ReportRequest>(to_json(*m)).ok());
    }
    if (auto m = from_json<ProgressRequest>(json); m.ok()) {
      EXPECT_TRUE(from_json<ProgressRequest>(to_json(*m)).ok());
    }
  }
}

}  // namespace
}  // namespace flextrain::protocol
