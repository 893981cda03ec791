// SPDX-License-Identifier: MIT
// The part of Supervisor that changes the layout: from an order to the next trainer's first step.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "agent/supervisor.h"
#include "base/log.h"

namespace flextrain::agent {
namespace {

std::map<std::pair<uint32_t, std::string>, int> counted(
    const std::vector<protocol::Allocation>& allocations) {
  std::map<std::pair<uint32_t, std::string>, int> gpus;
  for (const auto& allocation : allocations) {
    gpus[{allocation.job_id, allocation.host}] += allocation.gpus;
  }
  return gpus;
}

}  // namespace

Layout Supervisor::base_layout() const { return {job_.allocations, base_plan_}; }

std::set<uint32_t> Supervisor::companions_of(const Layout& layout) const {
  std::set<uint32_t> jobs;
  for (const auto& allocation : layout.allocations) {
    if (allocation.job_id != job_.identity.job_id) jobs.insert(allocation.job_id);
  }
  return jobs;
}

bool Supervisor::holds_doomed(const Layout& layout) const {
  const std::set<uint32_t> jobs = companions_of(layout);
  return std::any_of(jobs.begin(), jobs.end(), [&](uint32_t job) { return doomed_.contains(job); });
}

std::set<uint32_t> Supervisor::lost_companions() const {
  const std::set<uint32_t> used = companions_of(current_);
  std::set<uint32_t> lost;
  const Result<std::set<uint32_t>> running = options_.running_jobs(used);
  for (const uint32_t job : used) {
    // When Slurm says nothing, nothing can be counted on but our own job.
    if (!running.ok() || !running->contains(job) || doomed_.contains(job)) lost.insert(job);
  }
  return lost;
}

// What is left when `lost` go: with a Plan of the scale table for that many GPUs, else the base.
Layout Supervisor::without(const Layout& layout, const std::set<uint32_t>& lost) const {
  Layout left;
  for (const auto& allocation : layout.allocations) {
    if (!lost.contains(allocation.job_id)) left.allocations.push_back(allocation);
  }
  if (companions_of(left).empty()) return base_layout();
  left.plan = plan_of_table(table_, left.gpus());
  return left.plan.is_null() ? base_layout() : left;
}

void Supervisor::handle_event(Event event) {
  switch (event.kind) {
    case Event::Kind::kOrder:
      handle_order(std::move(event));
      break;
    case Event::Kind::kNotice:
      handle_notice(std::move(event));
      break;
    case Event::Kind::kRegistered:
      kept_.epoch = std::max(kept_.epoch, event.epoch);
      if (!event.registered.elastic) {
        log_info("not elastic: {}", event.registered.reason);
        break;
      }
      log_info("registered with the controller: {}, up to {} GPUs", event.registered.elastic_mode,
               event.registered.max_gpus);
      if (const Status status = control_dir_.write_request(
              event.registered.max_gpus, event.registered.elastic_mode, job_.device_type);
          !status.ok()) {
        log_warning("no scale table will be made: {}", status.message());
      }
      update_state_text();
      break;
    case Event::Kind::kLinkLost:
      break;  // a base needs no controller
  }
}

std::string Supervisor::why_refused(const protocol::Order& order) const {
  // The base is never resized: its own allocation must be there, whole.
  const auto own = counted(job_.allocations), ordered = counted(order.allocations);
  for (const auto& [place, gpus] : own) {
    const auto it = ordered.find(place);
    if (it == ordered.end() || it->second != gpus) {
      return fmt::format("the order does not keep the base's {} GPUs on {}", gpus, place.second);
    }
  }
  for (const auto& [place, gpus] : ordered) {
    if (place.first == job_.identity.job_id && !own.contains(place)) {
      return fmt::format("the order names {} as a host of the base, which it is not", place.second);
    }
  }
  if (user_stop_) return "the job is stopping on the user's signal";
  if (const Status writable = control_dir_.check_writable(); !writable.ok()) {
    return fmt::format("the trainer cannot be told: {}", writable.message());
  }
  for (const auto& allocation : order.allocations) {
    if (doomed_.contains(allocation.job_id)) {
      return fmt::format("Slurm calls companion {} back", allocation.job_id);
    }
  }
  return "";
}

void Supervisor::handle_order(Event event) {
  protocol::Order& order = event.order;
  if (order.kind != protocol::OrderKind::kGrow && order.kind != protocol::OrderKind::kShrink)
    return;
  // An order is one order whatever the connection or the controller did meanwhile.
  if (order.order_id == kept_.last_order_id) {
    if (kept_.last_report) send_report(*kept_.last_report);
    return;
  }
  if (event.epoch < kept_.epoch) {
    log_warning("an order of an older controller (epoch {}) is refused", event.epoch);
    return;
  }
  if (event.epoch == kept_.epoch && event.sequence <= kept_.last_sequence) return;
  if (state_ == State::kLaunching && !switch_) {
    if (pending_order_) {
      Switch superseded;
      superseded.order_id = pending_order_->order.order_id;
      report_failure(superseded, "superseded by another order");
    }
    pending_order_ = std::move(event);  // nothing to checkpoint before the first step
    return;
  }
  kept_.epoch = event.epoch;
  kept_.last_sequence = event.sequence;
  kept_.last_order_id = order.order_id;
  kept_.last_report.reset();
  if (const Status saved = control_dir_.save_state(kept_); !saved.ok()) {
    log_warning("the agent's state is not kept: {}", saved.message());
  }
  Switch next;
  next.kind =
      order.kind == protocol::OrderKind::kGrow ? Switch::Kind::kGrow : Switch::Kind::kShrink;
  next.order_id = order.order_id;
  next.deadline = Clock::now() + std::chrono::seconds(order.timeout_seconds);
  if (const std::string refused = why_refused(order); !refused.empty()) {
    return report_failure(next, refused);
  }
  next.target = {std::move(order.allocations), std::move(order.plan)};
  log_info("order {}: {} from {} to {} GPUs", next.order_id,
           next.kind == Switch::Kind::kGrow ? "grow" : "shrink", current_.gpus(),
           next.target.gpus());
  begin_switch(std::move(next));
}

// Starts a switch from whatever state; an unfinished one is superseded.
void Supervisor::begin_switch(Switch next) {
  if (state_ == State::kRunning) read_trainer_files();  // saves of before are not the switch's
  if (switch_) {
    if (!switch_->order_id.empty() && !switch_->left_reported) {
      report_failure(*switch_, "superseded by another order");
    }
    next.signalled = switch_->signalled;
    next.last_step = switch_->last_step;
    next.saved = switch_->saved;
    next.exited = switch_->exited;
  }
  switch_ = std::move(next);
  late_.reset();
  switch (state_) {
    case State::kRunning:
      state_ = State::kStopping;
      switch_->signalled = steady_seconds();
      ask_to_stop();
      break;
    case State::kLaunching:
      kill_trainer();
      break;
    case State::kBackoff:
      continue_switch();
      break;
    case State::kStopping:
    case State::kKilling:
    case State::kDone:
      break;  // on_exit() continues
  }
  update_state_text();
}

// The old trainer has ended: on to the target, or back.
void Supervisor::continue_switch() {
  if (last_step_ >= 0 && !moved_) moved_ = Clock::now();
  if (switch_->exited == 0) switch_->exited = steady_seconds();
  // A progress file written after the save tells of no later step.
  if (switch_->last_step == 0 && last_step_time_ > 0 &&
      (switch_->saved == 0 || last_step_time_ <= switch_->saved)) {
    switch_->last_step = last_step_time_;
  }
  if (switch_->failure.empty() && holds_doomed(switch_->target)) {
    if (switch_->kind == Switch::Kind::kGrow) {
      switch_->failure = "Slurm called a companion back meanwhile";
    } else {
      switch_->target = without(switch_->target, doomed_);
    }
  }
  if (!switch_->failure.empty()) return fail_switch(switch_->failure);
  if (switch_->kind != Switch::Kind::kGrow && !switch_->left_reported) report_left();
  launch(switch_->target, switch_->kind == Switch::Kind::kGrow     ? "grow"
                          : switch_->kind == Switch::Kind::kShrink ? "shrink"
                                                                   : "recover");
}

// The switch will not be. No process runs. A growth goes back to the last good layout; anything
// else has no way back, so it goes to the base, which is tried for a while.
void Supervisor::fail_switch(std::string reason) {
  Switch failed = std::move(*std::exchange(switch_, std::nullopt));
  log_warning("{}: {}", failed.order_id.empty() ? "recovery" : "order " + failed.order_id, reason);
  if (failed.kind == Switch::Kind::kGrow) {
    if (holds_doomed(good_)) good_ = without(good_, doomed_);
    report_failure(failed, reason);
    return launch(good_, "back to the last good layout");
  }
  if (!companions_of(failed.target).empty()) {
    failed.target = base_layout();
    failed.failure.clear();
    failed.left_reported = false;
    failed.deadline = Clock::time_point::max();
    switch_ = std::move(failed);
    return continue_switch();
  }
  // Already on the base: a trainer that fails from here on, without the Plan that failed.
  base_plan_ = Json();
  good_ = base_layout();
  failed.failure.clear();
  late_ = std::move(failed);
  restart_later(last_exit_, /*before_first_step=*/true);
}

void Supervisor::confirm_switch(double first_step) {
  const Switch done = *std::exchange(switch_, std::nullopt);
  protocol::ReportRequest report;
  report.order_id = done.order_id;
  report.done = true;
  report.reason = done.reason;
  report.phases = phases_of(done, first_step);
  report.gpus = current_.gpus();
  report.allocations = current_.allocations;
  log_info(
      "now on {} GPUs; save {:.2f} s, stop {:.2f} s, launch {:.2f} s, load {:.2f} s, first "
      "step {:.2f} s, in all {:.2f} s",
      report.gpus, report.phases.save, report.phases.stop, report.phases.launch, report.phases.load,
      report.phases.first_step, report.phases.total);
  if (!done.order_id.empty()) kept_.last_report = report;
  send_report(std::move(report));
}

protocol::PhaseSeconds Supervisor::phases_of(const Switch& done, double first_step) const {
  // Every mark that is missing takes the one before it, so that the phases always sum up to total.
  const auto after = [](double mark, double before) { return mark > before ? mark : before; };
  protocol::PhaseSeconds phases;
  const double exited = done.exited;
  double begin = done.last_step > 0 ? done.last_step : done.signalled;
  if (begin <= 0 || begin > exited) begin = exited;
  const double saved = std::min(exited, after(done.saved, begin));
  const double ready = after(done.ready, exited);
  const double loaded = after(done.loaded, ready);
  const double end = after(first_step, loaded);
  phases.save = saved - begin;
  phases.stop = exited - saved;
  if (first_step <= 0) return phases;
  phases.launch = ready - exited;
  phases.load = loaded - ready;
  phases.first_step = end - loaded;
  phases.total = end - begin;
  return phases;
}

// The companions that are not in the target are free as of now, which is what somebody waits for.
void Supervisor::report_left() {
  switch_->left_reported = true;
  protocol::ReportRequest report;
  report.order_id = switch_->order_id;
  report.done = true;
  report.reason = switch_->reason;
  report.phases = phases_of(*switch_, 0);
  report.gpus = switch_->target.gpus();
  report.allocations = switch_->target.allocations;
  if (!switch_->order_id.empty()) kept_.last_report = report;
  send_report(std::move(report));
}

void Supervisor::report_failure(const Switch& failed, std::string reason) {
  protocol::ReportRequest report;
  report.order_id = failed.order_id;
  report.done = false;
  report.reason = std::move(reason);
  report.gpus = good_.gpus();
  report.allocations = good_.allocations;
  if (!failed.order_id.empty() && failed.order_id == kept_.last_order_id)
    kept_.last_report = report;
  send_report(std::move(report));
}

// Without a switch, but elsewhere than the controller was told.
void Supervisor::report_moved(std::string reason) {
  if (told_.empty() || counted(told_) == counted(base_layout().allocations)) return;
  protocol::ReportRequest report;
  report.done = true;
  report.reason = std::move(reason);
  report.gpus = base_layout().gpus();
  report.allocations = base_layout().allocations;
  send_report(std::move(report));
}

void Supervisor::send_report(protocol::ReportRequest report) {
  told_ = report.allocations;
  if (link_ != nullptr) link_->report(std::move(report));
}

// The trainer is to leave `lost` (or has died with them).
void Supervisor::recover(const std::set<uint32_t>& lost, std::string reason) {
  Switch next;
  next.kind = Switch::Kind::kRecover;
  next.reason = std::move(reason);
  next.target = without(current_, lost);
  log_warning("{}: going on with {} GPUs", next.reason, next.target.gpus());
  if (state_ == State::kRunning && process_) return begin_switch(std::move(next));
  next.last_step = last_step_time_;
  next.exited = steady_seconds();
  good_ = next.target;
  switch_ = std::move(next);
  continue_switch();
}

void Supervisor::handle_notice(Event event) {
  const uint32_t job = event.notice.job_id;
  const bool used = companions_of(current_).contains(job) ||
                    (switch_ && companions_of(switch_->target).contains(job));
  log_info("Slurm calls companion {} back ({})", job, event.notice.reason);
  doomed_.insert(job);
  if (!used || !process_) {
    event.reply->send({});
    return;
  }
  notices_.push_back(event.reply);
  if (state_ == State::kRunning) {
    recover({job}, fmt::format("Slurm calls companion {} back", job));
  } else if (state_ == State::kLaunching && companions_of(current_).contains(job)) {
    if (switch_ && switch_->kind == Switch::Kind::kGrow) {
      switch_->failure = fmt::format("Slurm calls companion {} back", job);
    }
    kill_trainer();
  }  // else the old trainer is ending; continue_switch() sees doomed_
}

// No trainer process is left on any companion.
void Supervisor::answer_notices() {
  for (const protocol::ReplyPtr& reply : notices_) reply->send({});
  notices_.clear();
}

void Supervisor::update_state_text() {
  if (link_ == nullptr) return;
  if (switch_) {
    progress_.state = "switching";
  } else if (state_ == State::kRunning) {
    progress_.state = liveness_.saving() ? protocol::kTrainerSaving : protocol::kTrainerRunning;
  } else if (state_ == State::kBackoff) {
    progress_.state = "restarting";
  } else {
    progress_.state =
        state_ == State::kStopping || state_ == State::kDone ? "stopping" : "starting";
  }
  progress_.gpus = current_.gpus();
  link_->set_progress(progress_);
}

}  // namespace flextrain::agent
