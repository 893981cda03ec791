// SPDX-License-Identifier: GPL-2.0-or-later
// The controller's core: observe → decide → act → record, and the agents' messages. Single-
// threaded and without a thread, a clock or a socket of its own: Controller runs it on its worker,
// tests drive it by hand. Every call may use the Cluster and the Store.
//
// engine.cc           life, tick, storing
// engine_observe.cc   what the cluster says: jobs, companions, leases, orphans
// engine_switch.cc    transitions and their actions, orders
// engine_messages.cc  the agents' requests
// engine_clock.cc     a clock that is set, a process that was stopped
// engine_store.cc     the database's faults
// engine_idle.cc      idle GPUs and their tide, the forecast
// engine_commands.cc  people's pause and resume, and what else holds a job back
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "policy/forecast.h"
#include "policy/policy.h"
#include "protocol/endpoint_server.h"
#include "slurm_plugin/cluster/cluster.h"
#include "slurm_plugin/controller/controller_config.h"
#include "slurm_plugin/controller/decision_log.h"
#include "slurm_plugin/controller/durations.h"
#include "slurm_plugin/controller/managed_job.h"
#include "slurm_plugin/controller/snapshot.h"
#include "store/store.h"

namespace flextrain::slurm_plugin {

// Since the engine began.
struct EngineCounters {
  using Count = std::map<std::pair<std::string, std::string>, int64_t>;
  Count decisions;  // by kind and rule, every round's
  Count scalings;   // by kind and outcome
};

// What `sflex idle` and `sflex diag` show; replaced as a whole by tick() and tend().
struct LiveState {
  std::shared_ptr<const Json> idle =
      std::make_shared<Json>(Json::array());  // rows, of the last tick
  Json diag = Json::object();
  std::vector<std::pair<store::JobKey, Hold>> holds;  // of jobs that are held back
  EngineCounters counters;
};

class Engine {
 public:
  struct Options {
    std::function<int64_t()> clock;  // unix seconds
    uid_t slurm_uid = 0;             // besides root, may speak for every job
    std::function<int64_t()> steady =
        {};  // seconds that nobody sets; empty: no jumps are looked for
  };
  Engine(ControllerConfig config, Cluster& cluster, store::Store& store, Options options);

  // Takes a new epoch and everything open from the store. Once, before anything else.
  Status load();

  // One whole round. Errors of Cluster and Store are kept for diag, logged, and met again at the
  // next round.
  void tick();
  // What a round does without the cluster: silent agents, deadlines, progress to be stored. Between
  // rounds that are far apart.
  void tend();
  // Looks only at companions and bases of jobs that are in a transition; cheap.
  void glance();
  bool in_transition() const;  // glance() soon
  // A look should not wait: there are companions or a switch is on, or a job has become able to
  // grow since the last one.
  bool pressing() const;
  bool wants_tick();  // something happened that deserves a whole round; resets

  // A request of an agent, or a command (query is not one). Answers now or when an order comes.
  void handle(const protocol::Envelope& request, const protocol::Caller& caller,
              const protocol::ReplyPtr& reply);

  void set_config(const ControllerConfig& config) {
    config_ = config;
    forecaster_.reset();
  }
  // No job may grow while hold.rule is not "".
  void hold_all(Hold hold) { hold_all_ = std::move(hold); }

  std::shared_ptr<const LiveState> live() const { return live_; }
  int64_t epoch() const { return epoch_; }
  uint32_t newest_job_id() const { return newest_job_id_; }  // of the last observation
  const ManagedJobs& jobs() const { return jobs_; }
  const std::string& last_error() const { return last_error_; }

 private:
  using Index = std::map<uint32_t, const JobRecord*>;

  // engine.cc
  void round();
  void settle(ManagedJob& job);
  void decide_and_act(const ClusterView& view);
  void begin_intent(ManagedJob& job, const policy::Decision& decision, int64_t decision_id);
  void record_arrivals(const ClusterView& view);
  policy::Forecast forecast(const policy::Snapshot& snapshot);
  void record_idle(const ClusterView& view);
  Json idle_rows(const ClusterView& view) const;        // of LiveState
  std::map<std::string, int> expanded_by_node() const;  // GPUs that companions hold
  int64_t arrival_history() const;                      // seconds that the forecast looks back
  void persist(ManagedJob& job);
  static store::ElasticJobRow stored_row(const ManagedJob& job);
  void persist_progress();
  void forget_ended();
  void publish(std::shared_ptr<const Json> idle);
  void note_error(const Status& status, std::string_view doing);

  // engine_observe.cc
  void sync_jobs(const ClusterView& view, const Index& index);
  void sync_base(ManagedJob& job, const JobRecord* record);
  void follow_smaller_base(ManagedJob& job);
  void sync_companions(ManagedJob& job, const Index& index);
  void sync_companion(ManagedJob& job, Companion& companion, const JobRecord* record);
  void drop_ended_companions(ManagedJob& job);
  void sweep_orphans(const ClusterView& view);
  void check_agent(ManagedJob& job);
  void check_deadline(ManagedJob& job);
  void check_size(ManagedJob& job);
  void renew_leases(const ClusterView& view);
  std::vector<policy::Decision> lease_shrinks(const policy::Snapshot& snapshot,
                                              const std::vector<policy::Decision>& decisions);
  std::vector<policy::Decision> forced_shrinks() const;
  void give_up_growths(const policy::Snapshot& snapshot);
  ManagedJob* adopt(const JobRecord& record);

  // engine_switch.cc
  void apply(ManagedJob& job, ElasticEvent event, std::string why);
  void act(ManagedJob& job, ElasticAction action);
  void submit_companions(ManagedJob& job);
  void check_companions(ManagedJob& job);
  void send_order(ManagedJob& job);
  void offer_order(ManagedJob& job);
  Result<protocol::Order> build_order(ManagedJob& job) const;
  void adopt_size(ManagedJob& job);
  void leave(ManagedJob& job, Companion& companion);
  void cancel_leaving(ManagedJob& job);
  void finish_intent(ManagedJob& job, std::string_view outcome);
  void close(ManagedJob& job);
  int64_t deadline_of(const ManagedJob& job) const;

  // engine_clock.cc
  int64_t now() const;
  void mind_clock();
  void mind_deafness();
  void excuse(int64_t seconds);
  void shift_times(int64_t seconds);

  // engine_store.cc
  void mind_store();
  void note_store_fault(const Status& status);
  store::OpenState open_state() const;
  void keep_for_later(store::ScalingRow row);

  // engine_commands.cc
  bool is_admin(uid_t uid) const;
  Hold hold_of(const ManagedJob& job) const;
  std::string off_reason(const ManagedJob& job) const;
  store::JobKey all_jobs() const;  // the key of a hold on all of them
  void carry_hold(const store::JobKey& key, uint32_t user_id);
  Result<std::string> pause(ManagedJob* job, uid_t uid, const std::string& who);
  Result<std::string> resume(ManagedJob* job, uid_t uid, const std::string& who);
  store::DecisionRow command_row(std::string_view action, const ManagedJob* job, uid_t uid,
                                 const std::string& who) const;

  // engine_messages.cc
  struct Request {
    const protocol::Envelope& envelope;
    const protocol::Caller& caller;
    const protocol::ReplyPtr& reply;
  };
  void dispatch(const Request& request);
  void handle_command(const Request& request);
  void handle_register(const Request& request);
  void handle_register_companion(const Request& request, const protocol::RegisterRequest& body);
  void handle_base(const Request& request, ManagedJob& job);
  void handle_scale_table(const Request& request, ManagedJob& job);
  void handle_progress(const Request& request, ManagedJob& job);
  void take_progress(ManagedJob& job, const protocol::ProgressRequest& told);
  int poll_time() const;      // seconds that a poll may stay open
  int progress_pace() const;  // Order::progress_seconds
  void handle_poll(const Request& request, ManagedJob& job);
  void handle_report(const Request& request, ManagedJob& job);
  void handle_bye(const Request& request, ManagedJob& job);
  void handle_companion(const Request& request, ManagedJob& job, Companion& companion);
  protocol::Envelope response_to(const protocol::JobIdentity& job) const;
  void answer(const Request& request, Json body) const;
  void refuse(const Request& request, const Status& why) const;
  bool may_speak_for(const protocol::Caller& caller, uint32_t owner) const;
  protocol::Envelope no_order(const protocol::JobIdentity& job) const;

  ManagedJob* current(uint32_t job_id);  // the run that is not ending, nullptr
  ManagedJob* find(protocol::JobIdentity identity);
  std::string cluster_name() const;
  static protocol::JobIdentity identity_of(const ManagedJob& job);

  ControllerConfig config_;
  Cluster& cluster_;
  store::Store& store_;
  const Options options_;
  ManagedJobs jobs_;
  std::map<std::pair<uint32_t, int64_t>, policy::Arrival> arrivals_;  // job id, submit time
  std::optional<policy::Forecaster> forecaster_;  // of arrivals_ and the stored idle samples, made
                                                  // when first asked
  int64_t idle_stored_ = 0;                       // when the newest idle sample was
  std::vector<store::HoldRow> holds_;
  Hold hold_all_;
  std::string store_fault_;  // "" = the database takes what is written
  std::vector<store::ScalingRow> unsaved_scalings_;
  std::set<uint32_t> malformed_;  // tokens complained about, once each
  int64_t epoch_ = 0, started_ = 0, observed_since_ = 0, last_tick_ = 0, ticks_ = 0;
  bool clock_known_ = false;
  int64_t clock_offset_ = 0;  // the time of day less the steady clock, as of the running call
  int64_t listened_ = 0;      // steady time of the last moment that messages were taken
  int64_t clock_jumps_ = 0;
  bool shorten_leases_ = false;  // the clock was set back: they would end too late
  int64_t last_sequence_ = 0;    // of the newest order
  uint32_t newest_job_id_ = 0;
  bool wants_tick_ = false;
  bool news_ = true;        // since the last look; what pressing() says
  Durations decide_times_;  // of policy::decide()
  std::string last_error_;
  int64_t last_error_time_ = 0;
  bool first_look_ = true;                        // slurmctld may have lost what the store knows
  int64_t no_growth_before_ = 0;                  // after slurmctld has lost jobs
  std::map<std::string, int64_t> logged_errors_;  // when, so that one fault is not a line a tick
  EngineCounters counters_;
  DecisionLog decision_log_{store_};
  std::shared_ptr<const LiveState> live_ = std::make_shared<LiveState>();
};

}  // namespace flextrain::slurm_plugin
