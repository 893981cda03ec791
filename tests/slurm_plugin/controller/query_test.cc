// SPDX-License-Identifier: GPL-2.0-or-later
// What sflex gets, and who gets it.
#include "engine_rig.h"
#include "slurm_plugin/controller/query_handler.h"

namespace flextrain::slurm_plugin {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class QueryTest : public ::testing::Test {
 protected:
  QueryTest() {
    rig.nodes(4);
    rig.start();
    a = start_job(1001);
    b = start_job(2002);
    // A grows; what is left over B may take.
    TestAgent agent(rig, a);
    const auto poll = agent.poll();
    rig.step();
    for (const JobRecord& companion : rig.cluster.companions()) {
      TestAgent(rig, companion.job_id).register_companion();
    }
    if (poll->answered()) {
      agent.report(order_of(*poll).order_id, true, order_of(*poll).allocations, 4);
    }
    agent.progress(100, 1100, 2, 24);
    rig.step(10);
  }
  uint32_t start_job(uint32_t user) {
    const uint32_t id = rig.submit(user, 8);
    rig.step(1);
    TestAgent agent(rig, id);
    agent.register_base();
    agent.table({8, 16, 24});
    return id;
  }
  Result<Json> ask(const std::string& what, uid_t uid, Json filter = Json::object(),
                   bool admin = false) {
    auto answer = answer_query({what, std::move(filter)}, {uid, admin}, rig.store->queries(),
                               *rig.engine->live(), rig.cluster.now());
    if (!answer.ok()) return answer.status();
    return answer->at("rows");
  }

  Rig rig;
  uint32_t a = 0, b = 0;
};

TEST_F(QueryTest, UsersSeeTheirOwnJobsAdminsAll) {
  const Json mine = ask("jobs", 1001).value();
  ASSERT_THAT(mine, SizeIs(1));
  EXPECT_EQ(mine[0].at("job_id"), a);
  EXPECT_EQ(mine[0].at("state"), "steady");
  EXPECT_EQ(mine[0].at("base_gpus"), 8);
  EXPECT_EQ(mine[0].at("held_gpus"), 24);
  EXPECT_EQ(mine[0].at("step"), 100);
  EXPECT_EQ(mine[0].at("grows"), 1);
  EXPECT_NEAR(mine[0].at("remaining_seconds").get<double>(), 1990, 1e-6);
  EXPECT_THAT(mine[0].at("hosts"), SizeIs(3));
  EXPECT_THAT(ask("jobs", 2002).value(), SizeIs(1));
  EXPECT_THAT(ask("jobs", 3003).value(), IsEmpty());
  EXPECT_THAT(ask("jobs", 0, Json::object(), true).value(), SizeIs(2));
}

TEST_F(QueryTest, DecisionsAndTheirExplanationBelongToTheOwner) {
  Json grow;
  const Json rows = ask("decisions", 1001).value();
  for (const Json& row : rows) {
    EXPECT_EQ(row.at("job_id"), a);
    if (row.at("kind") == "grow") grow = row;
  }
  ASSERT_FALSE(grow.is_null());
  EXPECT_EQ(grow.at("outcome"), "done");
  const Json by_id = {{"id", grow.at("id")}};
  const Json explained = ask("explain", 1001, by_id).value();
  ASSERT_THAT(explained, SizeIs(1));
  EXPECT_FALSE(explained[0].at("inputs").empty());
  EXPECT_EQ(explained[0].at("scaling").at("phases").at("total"), 4.0);
  EXPECT_TRUE(explained[0].at("snapshot").is_null());  // it shows others' jobs
  EXPECT_FALSE(ask("explain", 0, by_id, true).value()[0].at("snapshot").is_null());
  EXPECT_EQ(ask("explain", 2002, by_id).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(ask("explain", 1001, {{"id", 99999}}).status().code(), StatusCode::kNotFound);
  EXPECT_THAT(ask("decisions", 1001, {{"kind", "grow"}}).value(), SizeIs(1));
}

TEST_F(QueryTest, AnExplanationShowsWhatElseCouldHaveBeen) {
  const Json grow = ask("decisions", 1001, {{"kind", "grow"}}).value()[0];
  const Json explained = ask("explain", 1001, {{"id", grow.at("id")}}).value()[0];
  const Json& entries = explained.at("entries");
  ASSERT_THAT(entries, SizeIs(2)) << "16 and 24 GPUs";
  EXPECT_EQ(entries[0].at("refused_by"), "not-best");
  EXPECT_EQ(entries[1].at("refused_by"), "");
  EXPECT_EQ(entries[1].at("gpus"), 24);
  EXPECT_DOUBLE_EQ(entries[1].at("speedup"), 3);
  EXPECT_EQ(explained.at("gate"), "none");
  EXPECT_EQ(explained.at("remaining_source"), "age");
  EXPECT_FALSE(explained.contains("victims"));
  // Whose GPUs others could have is not the owner's to know.
  rig.submit(3003, 8, 1, false);
  rig.step(1);
  const Json shrink = ask("decisions", 1001, {{"kind", "shrink"}}).value()[0];
  const Json by_id = {{"id", shrink.at("id")}};
  EXPECT_FALSE(ask("explain", 1001, by_id).value()[0].contains("victims"));
  const Json victims = ask("explain", 0, by_id, true).value()[0].at("victims");
  ASSERT_THAT(victims, SizeIs(1));
  EXPECT_EQ(victims[0].at("job_id"), a);
  EXPECT_EQ(victims[0].at("expanded"), 16);
  EXPECT_EQ(victims[0].at("gives"), 8);
}

TEST_F(QueryTest, TableAndCompanionsBelongToTheOwner) {
  const Json job = {{"job", {a}}};
  const Json table = ask("table", 1001, job).value();
  ASSERT_THAT(table, SizeIs(3));
  EXPECT_EQ(table[0].at("base"), true);
  EXPECT_EQ(table[2].at("current"), true);
  EXPECT_EQ(table[2].at("base_tokens_per_second"), 800.0);
  EXPECT_EQ(ask("table", 2002, job).status().code(), StatusCode::kNotFound);
  EXPECT_THAT(ask("companions", 1001).value(), SizeIs(2));
  EXPECT_EQ(ask("companions", 1001).value()[0].at("state"), "registered");
  EXPECT_THAT(ask("companions", 2002, job).value(), IsEmpty());
}

TEST_F(QueryTest, IdleAndDiagAreForAll) {
  const Json idle = ask("idle", 3003).value();
  ASSERT_THAT(idle, SizeIs(4));
  int expanded = 0;
  for (const Json& row : idle) expanded += row.at("expanded").get<int>();
  EXPECT_EQ(expanded, 16);
  const Json diag = ask("diag", 3003).value();
  EXPECT_EQ(diag[0].at("cluster"), "fake");
  EXPECT_EQ(diag[0].at("jobs"), 2);
}

TEST_F(QueryTest, TideIsForAll) {
  const Json tide = ask("tide", 3003).value();
  ASSERT_FALSE(tide.empty());
  EXPECT_EQ(tide[0].at("partition"), "") << "the whole cluster first";
  EXPECT_GT(tide[0].at("total"), 0);
  EXPECT_GE(tide[0].at("samples"), 1);
  EXPECT_THAT(ask("tide", 3003, {{"start", 4'000'000'000}}).value(), IsEmpty());
}

TEST_F(QueryTest, NonsenseIsRefused) {
  EXPECT_THAT(ask("secrets", 0, Json::object(), true).status().message(), HasSubstr("secrets"));
  EXPECT_FALSE(ask("jobs", 0, {{"job", "x"}}, true).ok());
  EXPECT_FALSE(ask("jobs", 0, Json::array(), true).ok());
  EXPECT_FALSE(ask("explain", 0, Json::object(), true).ok());
  EXPECT_FALSE(ask("table", 0, Json::object(), true).ok());
}

}  // namespace
}  // namespace flextrain::slurm_plugin
