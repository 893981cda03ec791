// SPDX-License-Identifier: GPL-2.0-or-later
// The controller's query thread: answers sflex out of the database and what the threads last told.
// It waits for neither the worker nor the cluster, and nobody waits for it.
#include <fmt/format.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "slurm_plugin/controller/controller_impl.h"
#include "slurm_plugin/controller/metrics.h"
#include "slurm_plugin/controller/query_handler.h"

namespace flextrain::slurm_plugin {
namespace {

// 0 when /proc does not say.
int64_t resident_bytes() {
  const Result<std::string> text = read_file("/proc/self/statm", 4096);
  if (!text.ok()) return 0;
  const std::vector<std::string> fields = split(*text, ' ');
  if (fields.size() < 2) return 0;
  return parse_int(fields[1]).value_or(0) * ::sysconf(_SC_PAGESIZE);
}

}  // namespace

void Controller::Impl::answer_queries() {
  while (!stopping) {
    Messages batch;
    {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return stopping || !queries.empty(); });
      batch.swap(queries);
    }
    for (const Message& query : batch) {
      if (stopping) return;
      try {
        answer_one(query);
      } catch (const std::exception& error) {
        log_error("a query of uid {} failed: {}", query.caller.uid, error.what());
        query.reply->send(
            protocol::error_response("internal error in the controller: see its log"));
      }
    }
  }
}

void Controller::Impl::answer_one(const Message& message) {
  protocol::Envelope response;
  const auto query = protocol::from_json<protocol::QueryRequest>(message.envelope.body);
  if (!query.ok()) {
    response.error = query.status().message();
    message.reply->send(std::move(response));
    return;
  }
  if (query->what == "diag" || query->what == "metrics") {  // also where the database is away
    const Json row = query->what == "diag" ? diag() : Json{{"text", metrics()}};
    response.body = {{"rows", Json::array({row})}};
    message.reply->send(std::move(response));
    return;
  }
  std::shared_ptr<store::Reader> source;
  std::shared_ptr<const LiveState> state;
  std::string error;
  {
    std::lock_guard lock(mutex);
    source = reader;
    state = live;
    error = start_error;
  }
  if (!source) {
    response.error = "the controller's database is not open: " + error;
  } else {
    const QueryCaller caller{message.caller.uid, is_admin(message.caller.uid)};
    Result<Json> rows = source->read([&](store::Queries& reading) {
      return answer_query(*query, caller, reading, *state, dependencies.clock());
    });
    if (rows.ok()) {
      response.body = std::move(rows).value();
    } else {
      response.error = rows.status().message();
    }
  }
  message.reply->send(std::move(response));
}

Json Controller::Impl::diag() {
  std::shared_ptr<const LiveState> state;
  std::shared_ptr<protocol::EndpointServer> endpoint;
  std::string error, database;
  size_t messages_waiting = 0, queries_waiting = 0;
  {
    std::lock_guard lock(mutex);
    state = live;
    endpoint = server;
    error = start_error;
    database = config.database_path;
    messages_waiting = messages.size();
    queries_waiting = queries.size();
  }
  Json row = state->diag;
  row.update(watchdog.report());
  // The worker's own word is of its last round; what keeps it from a next one is newer.
  std::string off = watchdog.reason();
  if (!error.empty()) off = error;
  if (!off.empty()) {
    row["elastic"] = false;
    row["elastic_reason"] = off;
  }
  row["version"] = FLEXTRAIN_VERSION;
  row["slurm_version"] = dependencies.slurm_version;
  row["config_file"] = dependencies.config_file;
  row["database"] = database;
  row["memory_bytes"] = resident_bytes();
  row["message_queue"] = messages_waiting;
  row["query_queue"] = queries_waiting;
  row["port"] = endpoint ? endpoint->port() : 0;
  const auto statistics =
      endpoint ? endpoint->statistics() : protocol::EndpointServer::Statistics();
  row["metrics_port"] = metrics_port.load();
  row["rest_seconds"] = rest_seconds.load();
  row["connections"] = statistics.connections;
  row["waiting_requests"] = statistics.waiting;
  row["requests"] = statistics.requests;
  row["refused_requests"] = statistics.refused;
  row["timed_out_requests"] = statistics.timed_out;
  return row;
}

std::string Controller::Impl::metrics() {
  std::shared_ptr<const LiveState> state;
  {
    std::lock_guard lock(mutex);
    state = live;
  }
  return render_metrics(diag(), *state);
}

}  // namespace flextrain::slurm_plugin
