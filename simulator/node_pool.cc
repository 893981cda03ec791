// SPDX-License-Identifier: MIT
// Nodes of equal size. Which nodes a growth takes and which companions go back is decided by the
// live policy (policy/selection.h, policy/reclaim.h).
#include <fmt/format.h>

#include <algorithm>

#include "policy/reclaim.h"
#include "policy/selection.h"
#include "simulator/pool.h"

namespace flextrain::simulator {
namespace {

struct Shape {  // of a job: whole nodes, and the rest on one more
  int whole = 0, rest = 0;
};

// GPUs per node, and how many nodes have each count.
class NodeCounts {
 public:
  NodeCounts(int nodes, int gpus_per_node)
      : per_node_(gpus_per_node),
        gpus_(static_cast<size_t>(nodes), gpus_per_node),
        nodes_with_(static_cast<size_t>(gpus_per_node) + 1, 0) {
    nodes_with_.back() = nodes;
    total_ = nodes * gpus_per_node;
  }

  int nodes() const { return static_cast<int>(gpus_.size()); }
  int at(int node) const { return gpus_[static_cast<size_t>(node)]; }
  int total() const { return total_; }
  int on_whole_nodes() const { return nodes_with_.back() * per_node_; }

  void add(int node, int gpus) {
    int& count = gpus_[static_cast<size_t>(node)];
    --nodes_with_[static_cast<size_t>(count)];
    count += gpus;
    total_ += gpus;
    ++nodes_with_[static_cast<size_t>(count)];
  }
  void add(const std::vector<NodeShare>& pieces, int sign) {
    for (const NodeShare& piece : pieces) add(piece.node, sign * piece.gpus);
  }

  bool fits(const Shape& shape) const {
    if (nodes_with_.back() < shape.whole) return false;
    if (shape.rest == 0) return true;
    int with_room = -shape.whole;
    for (int count = shape.rest; count <= per_node_; ++count)
      with_room += nodes_with_[static_cast<size_t>(count)];
    return with_room > 0;
  }

  // Of a shape that fits: the first whole nodes, then the fullest node with room for the rest, a
  // whole one only where there is no other.
  std::vector<NodeShare> place(const Shape& shape) const {
    std::vector<NodeShare> pieces;
    int fullest = -1, whole = shape.whole;
    for (int node = 0; node < nodes() && (whole > 0 || shape.rest > 0); ++node) {
      if (at(node) == per_node_ && whole > 0) {
        pieces.push_back({node, per_node_});
        --whole;
      } else if (shape.rest > 0 && at(node) >= shape.rest &&
                 (fullest < 0 || at(node) < at(fullest))) {
        fullest = node;
      }
      if (whole == 0 && (shape.rest == 0 || (fullest >= 0 && at(fullest) == shape.rest))) break;
    }
    if (shape.rest > 0) pieces.push_back({fullest, shape.rest});
    return pieces;
  }

 private:
  int per_node_ = 0, total_ = 0;
  std::vector<int> gpus_, nodes_with_;
};

struct Holding {
  std::vector<NodeShare> base, companions;
};

class NodePool : public Pool {
 public:
  NodePool(int nodes, int gpus_per_node, size_t jobs, const policy::Parameters& parameters)
      : Pool(nodes * gpus_per_node),
        per_node_(gpus_per_node),
        parameters_(parameters),
        now_(nodes, gpus_per_node),
        soon_(now_),
        reach_(now_),
        holdings_(jobs) {
    std::vector<std::string> names;
    const int width = static_cast<int>(std::to_string(nodes).size());
    for (int node = 0; node < nodes; ++node) names.push_back(fmt::format("{:0{}}", node, width));
    names_ = std::move(names);
  }

  std::vector<NodeShare> nodes_of(int job) const override {
    std::vector<NodeShare> list = of(job).base;
    list.insert(list.end(), of(job).companions.begin(), of(job).companions.end());
    return list;
  }
  int stranded() const override { return free_ - now_.on_whole_nodes(); }
  bool fits(int gpus) const override { return now_.fits(shape_of(gpus)); }
  bool fits_soon(int gpus) const override { return soon_.fits(shape_of(gpus)); }
  bool fits_at_most(int gpus) const override { return reach_.fits(shape_of(gpus)); }

  void start(int job, int gpus) override {
    Holding& holding = of(job);
    holding.base = now_.place(shape_of(gpus));
    for (NodeCounts* counts : {&now_, &soon_, &reach_}) counts->add(holding.base, -1);
    free_ -= gpus;
  }

  void end(int job, int base, int held) override {
    Holding& holding = of(job);
    for (NodeCounts* counts : {&now_, &soon_, &reach_}) counts->add(holding.base, 1);
    for (NodeCounts* counts : {&now_, &soon_}) counts->add(holding.companions, 1);
    free_ += held;
    expanded_ -= held - base;
    holding = {};
  }

  int fitting(int job) const override {
    int fitting = free_;
    for (const auto* pieces : {&of(job).base, &of(job).companions})
      for (const NodeShare& piece : *pieces) fitting -= now_.at(piece.node);
    return fitting;
  }

  void grow(int job, int gpus) override {
    Holding& holding = of(job);
    std::vector<char> barred(static_cast<size_t>(now_.nodes()), 0);
    for (const auto* pieces : {&holding.base, &holding.companions})
      for (const NodeShare& piece : *pieces) barred[static_cast<size_t>(piece.node)] = 1;
    std::vector<policy::IndexedOffer> offers;
    for (int node = 0; node < now_.nodes(); ++node)
      if (now_.at(node) > 0 && barred[static_cast<size_t>(node)] == 0)
        offers.push_back({node, now_.at(node)});
    // The offers cover it: it is fitting.
    const auto chosen = policy::choose_nodes(offers, gpus);
    for (const policy::IndexedOffer& take : *chosen) {
      holding.companions.push_back({take.node, take.gpus});
      now_.add(take.node, -take.gpus);
      soon_.add(take.node, -take.gpus);
    }
    free_ -= gpus;
    expanded_ += gpus;
  }

  std::vector<GiveBack> plan_reclaim(int gpus,
                                     const std::vector<ExpandedJob>& jobs) const override {
    policy::Snapshot snapshot;
    // A companion's id: its job's place in `jobs` and its own among the companions.
    std::vector<std::pair<size_t, size_t>> companions;
    for (const ExpandedJob& job : jobs) {
      policy::ElasticJobView view;
      view.job_id = static_cast<uint32_t>(job.job) + 1;
      view.steady = true;  // a switch may begin anew
      view.base_gpus = job.base;
      view.held_gpus = job.held;
      view.table = *job.table;
      view.remaining_seconds = job.remaining;
      const std::vector<NodeShare>& pieces = of(job.job).companions;
      for (size_t i = 0; i < pieces.size(); ++i) {
        companions.emplace_back(snapshot.elastic.size(), i);
        view.companions.push_back({static_cast<uint32_t>(companions.size()),
                                   names_[static_cast<size_t>(pieces[i].node)], pieces[i].gpus,
                                   false});
      }
      snapshot.elastic.push_back(std::move(view));
    }
    std::vector<policy::NodeOffer> offers;
    for (int node = 0; node < soon_.nodes(); ++node)
      if (soon_.at(node) > 0) offers.push_back({names_[static_cast<size_t>(node)], soon_.at(node)});
    const policy::SharedList<policy::NodeOffer> shared(std::move(offers));
    const Shape shape = shape_of(gpus);
    const auto wait = [&](int nodes, int per_node) {
      policy::WaitingJob waiting;
      waiting.nodes = nodes;
      waiting.gpus = nodes * per_node;
      waiting.gpus_per_node = per_node;
      waiting.offers = shared;
      waiting.usable_nodes = names_;
      snapshot.waiting.push_back(std::move(waiting));
    };
    if (shape.whole > 0) wait(shape.whole, per_node_);
    if (shape.rest > 0) wait(1, shape.rest);
    const policy::NodeIndex index(snapshot, parameters_);
    std::vector<GiveBack> plan;
    for (const policy::Decision& decision :
         policy::reclaim(snapshot, parameters_, index).decisions) {
      if (decision.kind != policy::DecisionKind::kShrink) continue;
      GiveBack give{static_cast<int>(decision.job_id) - 1, decision.to_gpus, {}};
      for (const uint32_t id : decision.give_back)
        give.leave.push_back(of(give.job).companions[companions[id - 1].second].node);
      plan.push_back(std::move(give));
    }
    return plan;
  }

  void shrink(const GiveBack& give, int held, double now, double time) override {
    Holding& holding = of(give.job);
    for (const NodeShare& piece : leaving(give)) {
      soon_.add(piece.node, piece.gpus);
      if (time > now)
        coming_.push_back({time, piece.node, piece.gpus});
      else
        now_.add(piece.node, piece.gpus);
    }
    std::erase_if(holding.companions, [&](const NodeShare& piece) { return goes(give, piece); });
    const int given = held - give.gpus;
    expanded_ -= given;
    (time > now ? coming_gpus_ : free_) += given;
  }

  void hand_over(double now) override {
    for (; !coming_.empty() && coming_.front().time <= now; coming_.pop_front()) {
      now_.add(coming_.front().node, coming_.front().gpus);
      free_ += coming_.front().gpus;
      coming_gpus_ -= coming_.front().gpus;
    }
  }

  std::unique_ptr<Shadow> shadow(int head_gpus) const override {
    return std::make_unique<NodeShadow>(*this, head_gpus);
  }

 private:
  class NodeShadow : public Shadow {
   public:
    NodeShadow(const NodePool& pool, int head_gpus)
        : pool_(pool),
          counts_(pool.reach_),
          head_gpus_(head_gpus),
          head_(pool.shape_of(head_gpus)) {}
    void add(int job, int /*base*/) override { counts_.add(pool_.of(job).base, 1); }
    bool fits() const override { return counts_.fits(head_); }
    int spare() const override { return counts_.total() - head_gpus_; }
    bool admits(int gpus, const std::vector<GiveBack>& plan) const override {
      NodeCounts free = plan.empty() ? pool_.now_ : pool_.soon_;
      for (const GiveBack& give : plan) free.add(pool_.leaving(give), 1);
      NodeCounts then = counts_;
      then.add(free.place(pool_.shape_of(gpus)), -1);
      return then.fits(head_);
    }
    void take(int job, int /*gpus*/) override { counts_.add(pool_.of(job).base, -1); }

   private:
    const NodePool& pool_;
    NodeCounts counts_;
    const int head_gpus_;
    const Shape head_;
  };

  Shape shape_of(int gpus) const { return {gpus / per_node_, gpus % per_node_}; }
  Holding& of(int job) { return holdings_[static_cast<size_t>(job)]; }
  const Holding& of(int job) const { return holdings_[static_cast<size_t>(job)]; }

  static bool goes(const GiveBack& give, const NodeShare& piece) {
    return std::find(give.leave.begin(), give.leave.end(), piece.node) != give.leave.end();
  }
  std::vector<NodeShare> leaving(const GiveBack& give) const {
    std::vector<NodeShare> pieces;
    for (const NodeShare& piece : of(give.job).companions)
      if (goes(give, piece)) pieces.push_back(piece);
    return pieces;
  }

  const int per_node_;
  const policy::Parameters& parameters_;
  // Free; with what is being handed over; with what elastic jobs hold beyond their bases, too.
  NodeCounts now_, soon_, reach_;
  std::vector<Holding> holdings_;  // by job
  policy::SharedList<std::string> names_;
};

}  // namespace

std::unique_ptr<Pool> make_node_pool(int nodes, int gpus_per_node, size_t jobs,
                                     const policy::Parameters& parameters) {
  return std::make_unique<NodePool>(nodes, gpus_per_node, jobs, parameters);
}

}  // namespace flextrain::simulator
