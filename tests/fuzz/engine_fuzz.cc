// SPDX-License-Identifier: GPL-2.0-or-later
// The controller's engine, over a fake cluster and a real store, with an elastic job that has just
// been ordered to grow. Each line is the JSON of an Envelope from that job's owner ("!" before it:
// from root, "?": from a stranger), or "tick N": N seconds pass. A missing job stands for the base
// job. Queries are answered as `sflex` gets them.
#include "base/text.h"
#include "protocol/framing.h"
#include "slurm_plugin/controller/query_handler.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/slurm_plugin/controller/engine_rig.h"

namespace flextrain::slurm_plugin {
namespace {

constexpr uid_t kOwner = 1001;
constexpr size_t kMaxLines = 16;

class World {
 public:
  World() {
    rig_.nodes(3);
    rig_.config.policy.cooldown_seconds = 0;
    rig_.start();
    base_ = rig_.submit(kOwner, 8);
    rig_.step();
    TestAgent agent(rig_, base_);
    agent.register_base();
    agent.table({8, 16, 24});
    rig_.step();
  }

  void line(std::string_view text) {
    if (text.starts_with("tick ")) {
      const Result<int64_t> seconds = parse_int(text.substr(5));
      rig_.step(seconds.ok() && *seconds >= 0 && *seconds <= 1'000'000 ? *seconds : 1);
      return;
    }
    const bool root = text.starts_with('!'), stranger = text.starts_with('?');
    if (root || stranger) text.remove_prefix(1);
    auto envelope = protocol::envelope_from_text(text);
    if (!envelope.ok()) return;
    if (envelope->job.job_id == 0) envelope->job = TestAgent(rig_, base_).identity();
    const uid_t uid = root ? 0 : stranger ? 1002 : kOwner;
    if (envelope->type == protocol::kQuery) {
      query(envelope->body, uid);
      return;
    }
    const auto reply = std::make_shared<TestReply>();
    rig_.engine->handle(*envelope, {uid, uid, "10.0.0.1"}, reply);
    FUZZ_REQUIRE(reply->answered() || reply->later_.has_value());
    if (stranger) FUZZ_REQUIRE(reply->answered());
  }

  ~World() { rig_.step(); }

 private:
  void query(const Json& body, uid_t uid) {
    const auto request = protocol::from_json<protocol::QueryRequest>(body);
    if (!request.ok()) return;
    const LiveState live = *rig_.engine->live();
    const auto rows =
        answer_query(*request, {uid, uid == 0}, rig_.store->queries(), live, rig_.cluster.now());
    protocol::Envelope response;
    if (rows.ok()) response.body = *rows;
    if (!rows.ok()) response.error = rows.status().message();
    FUZZ_REQUIRE(!protocol::envelope_to_text(response).empty());
  }

  Rig rig_;
  uint32_t base_ = 0;
};

}  // namespace
}  // namespace flextrain::slurm_plugin

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace flextrain;
  static const bool quiet = [] {
    set_log_sink([](LogLevel, std::string_view) {});
    set_log_level(LogLevel::kDebug);
    return true;
  }();
  (void)quiet;
  slurm_plugin::World world;
  std::string_view rest = fuzz::text_of(data, size);
  for (size_t i = 0; i < slurm_plugin::kMaxLines && !rest.empty(); ++i) {
    world.line(fuzz::take(rest));
  }
  return 0;
}
