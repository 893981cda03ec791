// SPDX-License-Identifier: GPL-2.0-or-later
// The figures as OpenMetrics: valid whatever is known, true to what happened, and served.
#include "slurm_plugin/controller/metrics.h"

#include <curl/curl.h>

#include "controller_fixture.h"
#include "engine_fixture.h"
#include "openmetrics.h"
#include "policy/decision_rules.h"

namespace flextrain::slurm_plugin {
namespace {

using ::testing::HasSubstr;

TEST(OpenMetricsReader, SeesWhatIsWrong) {
  const std::string head = "# TYPE a gauge\n# HELP a What.\n";
  EXPECT_EQ(OpenMetricsReader::read(head + "a 1\n# EOF\n").error, "");
  EXPECT_EQ(OpenMetricsReader::read(head + "a{x=\"y\\\"\",z=\"\"} -1.5e-05\n# EOF\n").error, "");
  for (const std::string& text :
       {head + "a 1\n", head + "a 1\n# EOF\n\n", head + "a 1\n\n# EOF\n", head + "# EOF\n",
        head + "b 1\n# EOF\n", head + "a_total 1\n# EOF\n", head + "a 1\na 2\n# EOF\n",
        head + "a one\n# EOF\n", head + "a{x=y} 1\n# EOF\n", head + "a{x=\"1\",x=\"2\"} 1\n# EOF\n",
        std::string("a 1\n# EOF\n"), std::string("# TYPE a gauge\na 1\n# EOF\n"),
        head + "a 1\n# UNIT a seconds\n# EOF\n", head + "# UNIT a seconds\na 1\n# EOF\n",
        head + "a 1\n# TYPE b gauge\n# HELP b B.\nb 1\n# HELP a A.\n# EOF\n",
        std::string("# TYPE a counter\n# HELP a A.\na 1\n# EOF\n"),
        std::string("# TYPE a counter\n# HELP a A.\na_total -1\n# EOF\n"),
        std::string("# TYPE a_total counter\n# HELP a_total A.\na_total_total 1\n# EOF\n")}) {
    EXPECT_NE(OpenMetricsReader::read(text).error, "") << text;
  }
}

TEST(Metrics, AreValidBeforeAnythingIsKnown) {
  const OpenMetrics metrics = OpenMetricsReader::read(render_metrics(Json::object(), LiveState()));
  EXPECT_EQ(metrics.error, "");
  EXPECT_GT(metrics.families.size(), 25u);
  EXPECT_EQ(metrics.value("flextrain_elastic"), 0);
  EXPECT_EQ(metrics.value("flextrain_watchdog_tripped"), 0);
  EXPECT_EQ(metrics.value("flextrain_scalings_total{kind=\"grow\",outcome=\"done\"}"), 0);
}

TEST(Metrics, NoTextCanBreakThem) {
  const Json diag = {{"version", "1\"} 7\n# EOF\n\\"},
                     {"slurm_version", 5},
                     {"jobs", "many"},
                     {"watchdog", "tripped: a tick\ntook \"long\""},
                     {"elastic", true},
                     {"tick_sum_seconds", std::nan("")},
                     {"tick_p50_seconds", 1.5e-7},
                     {"database_fault", "disk full"}};
  const std::string text = render_metrics(diag, LiveState());
  const OpenMetrics metrics = OpenMetricsReader::read(text);
  EXPECT_EQ(metrics.error, "") << text;
  EXPECT_EQ(metrics.value("flextrain_watchdog_tripped"), 1);
  EXPECT_EQ(metrics.value("flextrain_database_fault"), 1);
  EXPECT_EQ(metrics.value("flextrain_elastic"), 1);
  EXPECT_EQ(metrics.value("flextrain_elastic_jobs"), 0);
  EXPECT_EQ(metrics.value("flextrain_tick_seconds_sum"), 0);
  EXPECT_DOUBLE_EQ(metrics.value("flextrain_tick_seconds{quantile=\"0.5\"}"), 1.5e-7);
}

class MetricsOfEngine : public EngineTest {
 protected:
  OpenMetrics metrics() {
    const auto live = rig.engine->live();
    return OpenMetricsReader::read(render_metrics(live->diag, *live));
  }
};

TEST_F(MetricsOfEngine, CountWhatHappened) {
  begin(3);
  const uint32_t id = steady_base();
  grow(id);
  rig.step();
  OpenMetrics now = metrics();
  EXPECT_EQ(now.error, "");
  EXPECT_EQ(now.value("flextrain_decisions_total{kind=\"grow\",rule=\"best-entry\"}"), 1);
  const std::string no_idle = "flextrain_decisions_total{kind=\"refuse\",rule=\"no-idle\"}";
  const double refused = now.value(no_idle);
  EXPECT_GT(refused, 0);
  EXPECT_EQ(now.value("flextrain_scalings_total{kind=\"grow\",outcome=\"done\"}"), 1);
  EXPECT_EQ(now.value("flextrain_elastic_jobs"), 1);
  EXPECT_EQ(now.value("flextrain_agents"), 1);
  EXPECT_EQ(now.value("flextrain_companions"), 2);
  EXPECT_EQ(now.value("flextrain_gpus"), 24);
  EXPECT_EQ(now.value("flextrain_allocated_gpus"), 24);
  EXPECT_EQ(now.value("flextrain_expanded_gpus"), 16);
  EXPECT_EQ(now.value("flextrain_idle_gpus"), 0);
  rig.step();
  EXPECT_EQ(metrics().value(no_idle), refused + 1)
      << "every round's, though the store keeps one row";
  // A shrink that nobody answers.
  rig.submit(2002, 8, 1, false);
  rig.step(1);
  rig.step(rig.config.shrink_timeout + 1);
  rig.step(1);
  now = metrics();
  EXPECT_EQ(now.value("flextrain_decisions_total{kind=\"shrink\",rule=\"reclaim\"}"), 1);
  EXPECT_EQ(now.value("flextrain_scalings_total{kind=\"shrink\",outcome=\"done\"}") +
                now.value("flextrain_scalings_total{kind=\"shrink\",outcome=\"failed\"}"),
            1);
  rig.send(protocol::kCommand, {}, protocol::to_json(protocol::CommandRequest{"pause", id}), 0);
  rig.step(1);
  now = metrics();
  EXPECT_EQ(now.value("flextrain_paused_jobs"), 1);
}

TEST_F(MetricsOfEngine, ShowEveryRuleFromTheBeginning) {
  begin(1);
  const OpenMetrics before = metrics();
  const size_t samples = before.families.at("flextrain_decisions").samples.size();
  EXPECT_GT(samples, std::size(policy::kDecisionRules));
  const uint32_t id = steady_base();
  rig.step();
  rig.send(protocol::kCommand, {}, protocol::to_json(protocol::CommandRequest{"pause", id}), 0);
  rig.step();
  const OpenMetrics after = metrics();
  EXPECT_EQ(after.error, "");
  EXPECT_GT(after.value("flextrain_decisions_total{kind=\"refuse\",rule=\"paused\"}"), 0);
  EXPECT_EQ(after.families.at("flextrain_decisions").samples.size(), samples) << "a closed set";
}

size_t append(char* bytes, size_t size, size_t count, void* text) {
  static_cast<std::string*>(text)->append(bytes, size * count);
  return size * count;
}

struct Fetched {
  long status = 0;
  std::string type, text;
};

Fetched fetch(int port, const std::string& path) {
  Fetched fetched;
  CURL* curl = curl_easy_init();
  const std::string url = "http://127.0.0.1:" + std::to_string(port) + path;
  curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
  curl_easy_setopt(curl, CURLOPT_TIMEOUT, 60L);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, &append);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &fetched.text);
  if (curl_easy_perform(curl) == CURLE_OK) {
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &fetched.status);
    char* type = nullptr;
    curl_easy_getinfo(curl, CURLINFO_CONTENT_TYPE, &type);
    if (type != nullptr) fetched.type = type;
  }
  curl_easy_cleanup(curl);
  return fetched;
}

TEST_F(ControllerTest, MetricsAreServedOnAPortOfTheirOwn) {
  config.metrics_port = -1;
  start();
  ASSERT_TRUE(eventually([&] { return diag().value("metrics_port", 0) > 0; }));
  const int port = diag().at("metrics_port");
  OpenMetrics metrics;
  EXPECT_TRUE(eventually([&] {
    metrics = OpenMetricsReader::read(fetch(port, "/metrics").text);
    return metrics.value("flextrain_tick_seconds_count") >= 1;
  }));
  EXPECT_EQ(metrics.error, "");
  EXPECT_EQ(metrics.value("flextrain_elastic"), 1);
  EXPECT_GT(metrics.value("flextrain_rpcs_total"), 0);
  EXPECT_EQ(metrics.value("flextrain_idle_gpus"), 24);
  EXPECT_EQ(fetch(port, "/metrics").type, kMetricsContentType);
  EXPECT_EQ(fetch(port, "/v1/query").status, 404);
  EXPECT_EQ(fetch(controller->port(), "/metrics").status, 405) << "not where the agents talk";
  // sflex has the same text, of this moment.
  const auto answer = call(protocol::kQuery, 1001,
                           protocol::to_json(protocol::QueryRequest{"metrics", Json::object()}));
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  EXPECT_EQ(OpenMetricsReader::read(answer->body.at("rows").at(0).at("text")).error, "");
  EXPECT_TRUE(controller->stop(milliseconds(5000)));
  EXPECT_EQ(fetch(port, "/metrics").status, 0) << "closed with the controller";
}

TEST_F(ControllerTest, WithoutMetricsPortNothingIsServed) {
  start();
  EXPECT_TRUE(eventually([&] { return diag().value("ticks", 0) >= 1; }));
  EXPECT_EQ(diag().at("metrics_port"), 0);
}

// Another program has the port: one line, and everything else goes on.
TEST_F(ControllerTest, AMetricsPortThatIsTakenStopsNothing) {
  protocol::EndpointOptions options;
  options.bind_address = "127.0.0.1";
  options.port = 0;
  options.page = {"/", "text/plain", [] { return nullptr; }};
  const auto taken = protocol::EndpointServer::start(options, nullptr, nullptr);
  ASSERT_TRUE(taken.ok());
  config.metrics_port = (*taken)->port();
  start();
  EXPECT_TRUE(eventually([&] { return diag().value("ticks", 0) >= 1; }));
  EXPECT_EQ(diag().at("metrics_port"), 0);
  EXPECT_TRUE(controller->stop(milliseconds(5000)));
}

}  // namespace
}  // namespace flextrain::slurm_plugin
