// SPDX-License-Identifier: MIT
#include "agent/controller_link.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <utility>

#include "base/log.h"

namespace flextrain::agent {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kCallTimeout{15'000};
constexpr milliseconds kPollSlack{10'000};
constexpr milliseconds kEmptyPollPause{300};  // against a controller that answers polls at once
constexpr int kReportAttempts = 8;            // refusals of one report before it is dropped

// ± 25 %, so that thousands of agents do not return to a restarted controller in step.
milliseconds jittered(milliseconds time) {
  thread_local std::mt19937 random{std::random_device{}()};
  return milliseconds(static_cast<int64_t>(static_cast<double>(time.count()) *
                                           std::uniform_real_distribution<>(0.75, 1.25)(random)));
}

}  // namespace

ControllerLink::ControllerLink(LinkOptions options, protocol::RegisterRequest registration,
                               EventQueue& events)
    : options_(std::move(options)),
      events_(events),
      registration_(std::move(registration)),
      epoch_(options_.epoch),
      executed_(options_.last_sequence),
      job_(options_.job) {}

ControllerLink::~ControllerLink() { stop({}, milliseconds(0)); }

void ControllerLink::start() {
  poll_thread_ = std::thread([this] { run_poll(); });
  send_thread_ = std::thread([this] { run_send(); });
}

bool ControllerLink::stopping() const {
  const std::lock_guard lock(mutex_);
  return stop_;
}

Clock::time_point ControllerLink::last_heard() const {
  const std::lock_guard lock(mutex_);
  return last_heard_;
}

void ControllerLink::set_registration(protocol::RegisterRequest registration) {
  const std::lock_guard lock(mutex_);
  registration_ = std::move(registration);
  ++registration_version_;
  changed_.notify_all();
}

void ControllerLink::set_progress(protocol::ProgressRequest progress) {
  const std::lock_guard lock(mutex_);
  progress_ = std::move(progress);
  changed_.notify_all();
}

void ControllerLink::set_scale_table(protocol::ScaleTableRequest table) {
  const std::lock_guard lock(mutex_);
  table_ = std::move(table);
  table_epoch_ = -1;
  changed_.notify_all();
}

void ControllerLink::report(protocol::ReportRequest report) {
  const std::lock_guard lock(mutex_);
  reports_.push_back(std::move(report));
  changed_.notify_all();
}

void ControllerLink::set_executed(int64_t sequence) {
  const std::lock_guard lock(mutex_);
  executed_ = std::max(executed_, sequence);
}

void ControllerLink::stop(const protocol::ByeRequest& bye, milliseconds limit) {
  {
    std::unique_lock lock(mutex_);
    if (!stop_ && registered_ && limit.count() > 0) {
      bye_ = bye;
      changed_.notify_all();
      changed_.wait_for(lock, limit, [&] { return bye_sent_; });
    }
    stop_ = true;
    if (poll_client_) poll_client_->cancel();
    if (send_client_) send_client_->cancel();
    changed_.notify_all();
  }
  if (poll_thread_.joinable()) poll_thread_.join();
  if (send_thread_.joinable()) send_thread_.join();
}

void ControllerLink::sleep_for(milliseconds time) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, time, [&] { return stop_; });
}

void ControllerLink::complain(const Status& status) {
  std::string text = status.message();
  {
    const std::lock_guard lock(mutex_);
    if (stop_ || text == last_complaint_) return;
    last_complaint_ = text;
  }
  log_info("controller: {}", text);
}

// Makes the client of one of the two threads. The other thread's stays as it is.
Status ControllerLink::connect(std::shared_ptr<protocol::Client>& slot) {
  {
    const std::lock_guard lock(mutex_);
    if (slot != nullptr) return {};
  }
  ASSIGN_OR_RETURN(const protocol::ControllerLocation location, options_.locate());
  protocol::JobIdentity job;
  {
    const std::lock_guard lock(mutex_);
    job = job_;
  }
  if (job.submit_time == 0 && options_.identify) {
    ASSIGN_OR_RETURN(job, options_.identify());
  }
  if (job.cluster.empty()) job.cluster = location.cluster;
  protocol::ClientOptions options;
  options.hosts = location.hosts;
  options.controller_uid = location.slurm_uid;
  options.timeout = kCallTimeout;
  ASSIGN_OR_RETURN(std::unique_ptr<protocol::Client> client,
                   protocol::make_client(std::move(options), options_.auth));
  const std::lock_guard lock(mutex_);
  job_ = job;
  slot = std::move(client);
  if (stop_) slot->cancel();
  return {};
}

Result<protocol::Envelope> ControllerLink::call(protocol::Client& client, std::string_view type,
                                                Json body, milliseconds timeout) {
  protocol::Envelope request;
  request.type = std::string(type);
  request.body = std::move(body);
  {
    const std::lock_guard lock(mutex_);
    request.job = job_;
    // A register may go to a controller that has lost its store and counts from 1 again.
    request.controller_epoch = type == protocol::kRegister ? 0 : epoch_;
  }
  ASSIGN_OR_RETURN(protocol::Envelope response, client.call(std::move(request), timeout));
  const std::lock_guard lock(mutex_);
  if (response.controller_epoch < epoch_) {
    return permission_denied(
        "an answer of epoch {} is refused: epoch {} was seen before (an old controller still runs, "
        "or its store was lost)",
        response.controller_epoch, epoch_);
  }
  if (response.controller_epoch > epoch_) {
    if (type != protocol::kRegister) {
      registered_ = false;
      registered_version_ = 0;
      return failed_precondition("the controller has restarted (epoch {}): registering again",
                                 response.controller_epoch);
    }
    epoch_ = response.controller_epoch;
  }
  last_heard_ = Clock::now();
  last_complaint_.clear();
  return response;
}

Status ControllerLink::register_now(protocol::Client& client) {
  Json body;
  uint64_t version = 0;
  {
    const std::lock_guard lock(mutex_);
    body = to_json(registration_);
    version = registration_version_;
  }
  ASSIGN_OR_RETURN(const protocol::Envelope response,
                   call(client, protocol::kRegister, std::move(body), kCallTimeout));
  ASSIGN_OR_RETURN(protocol::RegisterResponse answer,
                   protocol::from_json<protocol::RegisterResponse>(response.body));
  Event event;
  event.kind = Event::Kind::kRegistered;
  event.epoch = response.controller_epoch;
  event.registered = answer;
  {
    const std::lock_guard lock(mutex_);
    registered_ = true;
    registered_version_ = std::max(registered_version_, version);
    elastic_ = answer.elastic;
    poll_seconds_ = std::max(1, answer.poll_seconds);
    progress_pace_ = std::chrono::seconds(answer.progress_seconds);
    changed_.notify_all();
  }
  events_.push(std::move(event));
  return {};
}

Status ControllerLink::poll_once(protocol::Client& client) {
  protocol::PollRequest poll;
  milliseconds timeout;
  {
    const std::lock_guard lock(mutex_);
    poll.last_sequence = executed_;
    // A change of state is told by itself, at once and until it is heard.
    if (progress_ && progress_->state == told_state_) {
      poll.progress = std::exchange(progress_, std::nullopt);
      told_progress_ = Clock::now();
    }
    timeout = std::chrono::seconds(poll_seconds_) + kPollSlack;
  }
  const auto begin = Clock::now();
  ASSIGN_OR_RETURN(const protocol::Envelope response,
                   call(client, protocol::kPoll, to_json(poll), timeout));
  ASSIGN_OR_RETURN(protocol::Order order, protocol::from_json<protocol::Order>(response.body));
  {
    const std::lock_guard lock(mutex_);
    progress_pace_ = std::chrono::seconds(order.progress_seconds);
  }
  if (order.kind == protocol::OrderKind::kNone) {
    if (Clock::now() - begin < kEmptyPollPause) sleep_for(jittered(kEmptyPollPause));
    return {};
  }
  Event event;
  event.kind = Event::Kind::kOrder;
  event.order = std::move(order);
  event.epoch = response.controller_epoch;
  event.sequence = response.sequence;
  set_executed(response.sequence);  // "executed or in work"
  events_.push(std::move(event));
  if (Clock::now() - begin < kEmptyPollPause) sleep_for(jittered(kEmptyPollPause));
  return {};
}

void ControllerLink::run_poll() {
  milliseconds retry = options_.first_retry;
  while (!stopping()) {
    Status status = connect(poll_client_);
    if (status.ok()) {
      std::unique_lock lock(mutex_);
      const bool must_register = !registered_;
      const bool elastic = elastic_;
      lock.unlock();
      if (must_register) {
        status = register_now(*poll_client_);
      } else if (!elastic) {
        sleep_for(jittered(options_.elastic_retry));
        const std::lock_guard relock(mutex_);
        registered_ = false;  // ask again: an admin may have switched it on
        continue;
      } else {
        status = poll_once(*poll_client_);
      }
    }
    if (status.ok()) {
      retry = options_.first_retry;
      continue;
    }
    if (status.code() == StatusCode::kAborted) continue;  // stopping
    complain(status);
    {
      const std::lock_guard lock(mutex_);
      registered_ = false;  // whatever it was: introduce ourselves again
      poll_client_.reset();
    }
    sleep_for(jittered(retry));
    retry = std::min(2 * retry, options_.last_retry);
  }
}

void ControllerLink::run_send() {
  milliseconds retry = options_.first_retry;
  int report_attempts = 0;
  for (;;) {
    std::unique_lock lock(mutex_);
    enum class Work { kNone, kRegister, kReport, kTable, kProgress, kBye } work = Work::kNone;
    Json body;
    int64_t epoch = 0;
    const auto pick = [&] {
      if (!registered_) return;
      epoch = epoch_;
      // State changes at once, numbers only now and then.
      const bool progress_due =
          progress_ && (progress_->state != told_state_ ||
                        Clock::now() - told_progress_ >=
                            std::max<milliseconds>(options_.progress_interval, progress_pace_));
      if (registered_version_ < registration_version_) {
        work = Work::kRegister;
      } else if (!elastic_ && !bye_) {
        return;
      } else if (elastic_ && !reports_.empty()) {
        work = Work::kReport;
        body = to_json(reports_.front());
      } else if (elastic_ && table_ && table_epoch_ != epoch_ && !bye_) {
        work = Work::kTable;
        body = to_json(*table_);
      } else if (elastic_ && progress_due && !bye_) {
        work = Work::kProgress;
        body = to_json(*progress_);
        told_state_ = progress_->state;
        progress_.reset();
      } else if (bye_ && !bye_sent_) {
        work = Work::kBye;
        body = to_json(*bye_);
      }
    };
    while (!stop_ && (pick(), work == Work::kNone)) changed_.wait_for(lock, milliseconds(500));
    if (stop_) return;
    lock.unlock();

    Status status = connect(send_client_);
    if (status.ok()) {
      static constexpr std::string_view kTypes[] = {"",
                                                    protocol::kRegister,
                                                    protocol::kReport,
                                                    protocol::kScaleTable,
                                                    protocol::kProgress,
                                                    protocol::kBye};
      status = work == Work::kRegister ? register_now(*send_client_)
                                       : call(*send_client_, kTypes[static_cast<int>(work)],
                                              std::move(body), kCallTimeout)
                                             .status();
    }
    lock.lock();
    if (work == Work::kProgress) told_progress_ = Clock::now();
    if (work == Work::kBye) {
      bye_sent_ = true;  // a second try is not worth the user's time
      changed_.notify_all();
      return;
    }
    if (status.ok()) {
      retry = options_.first_retry;
      if (work == Work::kReport) {
        reports_.pop_front();
        report_attempts = 0;
      }
      if (work == Work::kTable) table_epoch_ = epoch;
      continue;
    }
    if (work == Work::kReport && status.code() == StatusCode::kFailedPrecondition &&
        ++report_attempts >= kReportAttempts) {
      log_warning("controller: a report is dropped: {}", status.message());
      reports_.pop_front();
      report_attempts = 0;
    }
    if (status.code() == StatusCode::kFailedPrecondition) {
      registered_version_ = 0;  // it may have forgotten us
    } else {
      send_client_.reset();
    }
    lock.unlock();
    if (status.code() != StatusCode::kAborted) complain(status);
    sleep_for(jittered(retry));
    retry = std::min(2 * retry, options_.last_retry);
  }
}

}  // namespace flextrain::agent
