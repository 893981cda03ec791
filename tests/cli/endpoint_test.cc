// SPDX-License-Identifier: MIT
// sflex against a real endpoint over HTTP; only the credentials are fake.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "protocol/client.h"
#include "protocol/endpoint_server.h"
#include "protocol/fake_auth.h"
#include "tests/cli/fake_environment.h"

namespace flextrain::cli {
namespace {

using ::testing::HasSubstr;

// Asks over the wire, as system.cc does.
class WireEnvironment : public FakeEnvironment {
 public:
  explicit WireEnvironment(int port) {
    protocol::ClientOptions options;
    options.hosts = {{"127.0.0.1", port}};
    options.controller_uid = 4242;
    auto made =
        protocol::make_client(options, std::make_shared<protocol::FakeAuthenticator>(1001, 1001));
    EXPECT_TRUE(made.ok());
    client_ = std::move(*made);
  }
  Result<Json> query(const protocol::QueryRequest& request) override {
    ASSIGN_OR_RETURN(protocol::Envelope response,
                     client_->call(protocol::make_request(protocol::kQuery, {}, 0, request)));
    return std::move(response.body);
  }

 private:
  std::unique_ptr<protocol::Client> client_;
};

class Endpoint : public ::testing::Test {
 protected:
  Endpoint() {
    protocol::EndpointOptions options;
    options.bind_address = "127.0.0.1";
    options.port = 0;
    auto made = protocol::EndpointServer::start(
        options, std::make_shared<protocol::FakeAuthenticator>(4242, 4242),
        [this](const protocol::Envelope& request, const protocol::Caller& caller,
               protocol::ReplyPtr reply) {
          const auto query = protocol::from_json<protocol::QueryRequest>(request.body);
          if (!query.ok() || query->what != "jobs") {
            reply->send(protocol::error_response("there is no elastic job 99"));
            return;
          }
          protocol::Envelope response;
          Json rows = Json::array();
          for (int i = 0; i < rows_; ++i)
            rows.push_back({{"job_id", i + 1}, {"user", std::to_string(caller.uid)}});
          response.body = {{"rows", rows}};
          reply->send(response);
        });
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    server_ = std::move(*made);
  }

  int rows_ = 1;
  std::unique_ptr<protocol::EndpointServer> server_;
};

TEST_F(Endpoint, RowsComeOverTheWire) {
  WireEnvironment environment(server_->port());
  EXPECT_EQ(run_sflex({"jobs", "-nP", "-o", "JobID,User"}, environment).out, "1|1001\n");
}

TEST_F(Endpoint, ManyRowsComeInChunks) {
  rows_ = 20'000;
  WireEnvironment environment(server_->port());
  const AppResult result = run_sflex({"jobs", "-nP", "-o", "JobID"}, environment);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("\n20000\n"));
}

TEST_F(Endpoint, RefusalInTheControllersWords) {
  WireEnvironment environment(server_->port());
  const AppResult result = run_sflex({"table", "99"}, environment);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("there is no elastic job 99"));
}

TEST_F(Endpoint, StoppedController) {
  WireEnvironment environment(server_->port());
  server_->stop();
  const AppResult result = run_sflex({"jobs"}, environment);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
}

}  // namespace
}  // namespace flextrain::cli
