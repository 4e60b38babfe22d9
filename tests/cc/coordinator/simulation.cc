#include "tests/cc/coordinator/simulation.h"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <tuple>
#include <unordered_map>

#include "tests/cc/coordinator/simulated_rank.h"
#include "tf_ops/base/log.h"
#include "tf_ops/collectives/collective.h"
#include "tf_ops/coordinator/control_loop.h"

namespace hvd {
namespace {

using Time = Clock::time_point;

// Thrown by a check; caught by RunHistory.
struct Wrong {
  std::string text;
};

void Check(bool ok, const std::string& text) {
  if (!ok) throw Wrong{text};
}

// The k-th time that ranks bring a name is instance k of it.
struct Instance {
  int brought = 0;
  int ran = 0;
  int failed = 0;
  bool refused = false;
  bool disturbed = false;  // refused, cancelled or disagreed about by somebody
  std::set<std::string> shapes;
};

class History {
 public:
  explicit History(const HistoryOptions& o) : o_(o), random_(o.seed * 7919u + 17u) {
    config_.cache_capacity = o.cache_capacity;
    config_.fusion_threshold_bytes = o.threshold_bytes;
    // Mail is late by any time here, which must not look like silence.
    config_.heartbeat_timeout_s = config_.mismatch_time_s = 1e8;
    config_.stall_check_disable = true;
    World world;
    world.size = o.ranks;
    for (int r = 0; r < o.ranks; ++r) {
      world.hosts.push_back(StrCat("h", r < o.hosts ? r : Pick(0, o.hosts - 1)));
    }
    world.process_sets.emplace_back(o.ranks);
    std::iota(world.process_sets[0].begin(), world.process_sets[0].end(), 0);
    for (int s = 0; s < o.sets; ++s) {
      if (auto some = SomeRanks(); !some.empty()) world.process_sets.push_back(std::move(some));
    }
    topology_ = std::make_unique<Topology>(world.hosts);
    for (size_t set = 0; set < world.process_sets.size(); ++set) {
      for (int t = 0; t < o.tensors; ++t) {
        if (Pick(0, 99) >= o.abandon_percent || world.process_sets[set].size() < 2) continue;
        // All but one of the ranks may bring it.
        std::set<int>& some = abandoned_[{static_cast<int>(set), StrCat("t", t)}];
        for (size_t m = 1; m < world.process_sets[set].size(); ++m) {
          if (Pick(0, 1)) some.insert(world.process_sets[set][m]);
        }
      }
    }
    // Which tensors change their shape in which step, for all alike.
    for (int s = 0; s <= o.steps; ++s) {
      for (int t = 0; t < o.tensors; ++t) {
        const bool changes = s > 0 && Pick(0, 99) < o.change_percent;
        version_[{s, t}] = s == 0 ? 0 : version_[{s - 1, t}] + changes;
      }
    }
    for (int s = 0; s < o.steps; ++s) set_changes_.push_back({SomeRanks(), Pick(0, 99)});
    mail_.resize(o.ranks);
    ranks_ = std::vector<Rank>(o.ranks);
    for (int r = 0; r < o.ranks; ++r) {
      ranks_[r].Begin(world, r, config_, &mail_, now_);
    }
    for (Rank& rank : ranks_) rank.steps = o.joiners ? Pick(0, o.steps) : o.steps;
    deaths_left_ = o.deaths;
  }

  void Run() {
    for (int turns = 0;; ++turns) {
      Check(turns < 1000000, "the history does not end");
      std::vector<int> able;
      for (int r = 0; r < o_.ranks; ++r) {
        if (CanAct(r)) able.push_back(r);
      }
      if (!able.empty() && Pick(0, 199) != 0) {
        Act(able[Pick(0, static_cast<int>(able.size()) - 1)]);
      } else if (!Wait() && able.empty()) {
        break;
      }
    }
    CheckEnd();
  }

 private:
  struct SetChange {
    std::vector<int> ranks;  // to add, where there is no such set yet; else some set goes
    int which = 0;
  };

  int Pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }

  std::vector<int> SomeRanks() {
    std::vector<int> some;
    for (int r = 0; r < o_.ranks; ++r) {
      if (Pick(0, 1)) some.push_back(r);
    }
    return some;
  }

  bool CanProceed(const Rank& rank) const {
    if (rank.stopped) return false;
    if (Finished(rank)) return MayStop();
    return !rank.to_do.empty() || rank.pending.empty() || !rank.to_give_up.empty();
  }

  bool Finished(const Rank& rank) const {
    return rank.step == rank.steps && rank.to_do.empty() && rank.pending.empty() &&
           (rank.joined || !o_.joiners);
  }

  // Who leaves early ends what needs it, so only histories with leavers do that.
  bool MayStop() const {
    return o_.leavers || somebody_died_ ||
           std::all_of(ranks_.begin(), ranks_.end(),
                       [this](const Rank& rank) { return rank.stopped || Finished(rank); });
  }

  bool CanAct(int r) {
    const Rank& rank = ranks_[r];
    if (rank.dead) return false;
    return CanRun(r) || CanProceed(rank) || (!rank.over && mail_[r].any());
  }

  void Act(int r) {
    Rank& rank = ranks_[r];
    const int choice = Pick(0, 5);
    if (choice <= 2) {
      if (!rank.over && mail_[r].any()) Deliver(r);
    } else if (choice == 3) {
      if (CanRun(r)) RunOne(r);
    } else if (!rank.stopped) {
      Proceed(r);
    } else if (!rank.over && deaths_left_ > 0 && Pick(0, 20) == 0) {
      Die(r);
    }
  }

  // A collective takes all its members: it ends when all have begun it, and no one that has
  // not ended it is dead.
  bool IsComplete(const Response& response) {
    const Collective& c = collectives_[response.sequence];
    std::vector<int> members;
    for (int m : ranks_[0].sets->members(response.process_set)) {
      const std::vector<int>& absent = response.absent;
      if (!std::binary_search(absent.begin(), absent.end(), m)) members.push_back(m);
    }
    if (c.begun.size() < members.size() || !somebody_died_) return c.begun.size() == members.size();
    return std::all_of(members.begin(), members.end(), [&](int m) {
      return c.begun.count(m) > 0 && (!ranks_[m].dead || c.ended.count(m) > 0);
    });
  }

  bool CanRun(int r) {
    const SimulatedRunner& runner = ranks_[r].runner;
    if (runner.posted.empty()) return false;
    const Response& response = runner.posted.front().response;
    return !runner.aborted.ok() || !response.status.ok() ||
           collectives_[response.sequence].begun.count(r) == 0 || IsComplete(response);
  }

  // Time passes until somebody's timer; false: nobody has one but for heartbeats.
  bool Wait() {
    constexpr std::chrono::seconds kLongest{10};
    Deadline next;
    for (Rank& rank : ranks_) {
      if (!rank.dead && !rank.over) next = Earlier(next, rank.loop->NextTimer());
    }
    if (next.never() || next.at() > now_ + kLongest) return false;
    now_ = std::max(now_, next.at()) + std::chrono::milliseconds(1);
    for (int r = 0; r < o_.ranks; ++r) {
      if (!ranks_[r].dead && !ranks_[r].over) Turn(r, {});
    }
    return true;
  }

  void Turn(int r, const std::vector<ControlEvent>& events) {
    Rank& rank = ranks_[r];
    now_ += std::chrono::microseconds(1);
    if (rank.loop->Turn(events, now_)) return;
    rank.over = true;
    Close(r, "it ended");
  }

  // The neighbors find the connection closed, after what was sent on it.
  void Close(int r, const std::string& how) {
    for (int peer : topology_->neighbors(r)) {
      mail_[peer].from[r].push_back({ControlEvent::Type::kClosed, r, {}, how});
    }
  }

  void Deliver(int r) {
    std::vector<ControlEvent> events;
    if (std::exchange(mail_[r].bell, false)) {
      events.push_back({ControlEvent::Type::kWake, r, {}, {}});
    }
    for (auto& [peer, queue] : mail_[r].from) {
      for (int n = Pick(0, 3); n > 0 && !queue.empty(); --n) {
        events.push_back(std::move(queue.front()));
        queue.pop_front();
      }
    }
    Turn(r, events);
  }

  void RunOne(int r) {
    Rank& rank = ranks_[r];
    const Response& response = rank.runner.posted.front().response;
    Status status = response.status;
    if (!rank.runner.aborted.ok()) status = rank.runner.aborted;
    if (status.ok()) {
      collectives_[response.sequence].begun.insert(r);
      if (!IsComplete(response)) return;
      collectives_[response.sequence].ended.insert(r);
      Check(response.sequence > rank.last_run, StrCat("rank ", r, " runs out of order"));
      rank.last_run = response.sequence;
      std::string what = StrCat(response.process_set, " ", response.part_begin, "+",
                                response.part_count, " without ", Join(response.absent, 99), ":");
      for (size_t i = 0; i < response.tensors.size(); ++i) {
        const Signature& s = *response.tensors[i].signature;
        what += StrCat(" ", s.name, ShapeText(s.shape()), Join(response.sizes[i], 99), s.root);
      }
      const auto [it, fresh] = stream_.emplace(response.sequence, what);
      Check(it->second == what, StrCat("position ", response.sequence, " is '", what, "' on rank ",
                                       r, " and '", it->second, "' elsewhere"));
    }
    const SimulatedRunner::Work work = std::move(rank.runner.posted.front());
    rank.runner.posted.pop_front();
    if (work.response.is_last_part()) {
      for (const auto& request : work.requests) rank.queue->Finish(request, status);
    }
    rank.loop->OnProgress();
  }

  void Proceed(int r) {
    Rank& rank = ranks_[r];
    if (deaths_left_ > 0 && Pick(0, 40 * o_.ranks) == 0) return Die(r);
    if (o_.leavers && Pick(0, 60) == 0) return Stop(r);
    if (!rank.to_do.empty()) {
      const Signature s = rank.to_do.back();
      rank.to_do.pop_back();
      Bring(r, s);
    } else if (!rank.to_give_up.empty()) {
      const uint64_t id = *rank.to_give_up.begin();
      rank.to_give_up.erase(id);
      Cancel(r, id);
    } else if (!rank.pending.empty()) {
      if (Pick(0, 99) >= o_.trouble_percent) return;
      const int which = Pick(0, static_cast<int>(rank.pending.size()) - 1);
      const auto& [id, name] = *std::next(rank.pending.begin(), which);
      // Among many ranks, joins that any may give up at any time would never come to an end.
      if (name.second == kJoinName && given_up_joins_++ > 3) return;
      Cancel(r, id);
    } else if (rank.step < rank.steps) {
      BeginStep(r);
    } else if (o_.joiners && !rank.joined) {
      Signature join;
      join.name = kJoinName;
      join.kind = Kind::kJoin;
      join.dtype = DType::kInt32;
      join.shapes = {{}};
      Bring(r, join);
    } else if (MayStop()) {
      Stop(r);
    }
  }

  void OnJoined(int r, const Status& status) {
    // One that was given up is tried again, unless nobody can come to it any more.
    ranks_[r].joined = status.ok() || o_.leavers || somebody_died_;
  }

  void Bring(int r, Signature s) {
    Rank& rank = ranks_[r];
    const Called name{s.process_set, s.name};
    const int k = rank.times[name]++;
    Instance& instance = instances_[{name, k}];
    ++instance.brought;
    const bool joins = s.kind == Kind::kJoin;
    const bool changes_sets = s.name == kProcessSetsName;
    // Who has joined takes no part in it.
    if (changes_sets && o_.joiners) instance.disturbed = true;
    if (rank.removing != 0 && s.process_set == rank.removing) instance.disturbed = true;
    if (!joins && Pick(0, 99) < o_.trouble_percent) {
      instance.refused = instance.disturbed = true;
      rank.queue->Refuse(s, "no");
      return;
    }
    // What does not stand against running together, but makes another cache entry.
    s.gradient = Pick(0, 99) < o_.odd_percent && abandoned_.count(name) == 0;
    if (!joins && !changes_sets && Pick(0, 99) < o_.disagree_percent) {
      s.shapes[0].push_back(1 + r);
      instance.disturbed = true;
    }
    auto request = std::make_shared<Request>();
    request->signature = s;
    Request* const raw = request.get();
    request->done = [this, r, raw, name, k, joins](const Status& status) {
      Check(ranks_[r].pending.erase(raw->id) == 1, "a request is done twice");
      ranks_[r].to_give_up.erase(raw->id);
      ranks_[r].gradients.erase(raw->id);
      Instance& i = instances_[{name, k}];
      // A gradient that was withdrawn is waited for.
      if (raw->signature.gradient && status.code() == Code::kCancelled) {
        --i.brought;
        --ranks_[r].times[name];
        ranks_[r].to_do.push_back(raw->signature);
        return;
      }
      ++(status.ok() ? i.ran : i.failed);
      if (joins) OnJoined(r, status);
    };
    uint64_t id = 0;
    const Status status = rank.queue->Add(request, &id);
    if (status.ok()) {
      rank.pending[id] = name;
      if (s.gradient) rank.gradients[id] = raw;
      if (rank.step == o_.steps && abandoned_.count(name) > 0) rank.to_give_up.insert(id);
    } else {
      Check(status.code() != Code::kInvalidArgument, status.message());
      instance.disturbed = true;
      ++instance.failed;
      if (joins) OnJoined(r, status);
    }
  }

  void Cancel(int r, uint64_t id) {
    Rank& rank = ranks_[r];
    // What is dropped before it is announced, or again, may pay a debt: whether, nobody here knows.
    const auto gradient = rank.gradients.find(id);
    if (gradient != rank.gradients.end() &&
        (o_.cache_capacity > 0 || gradient->second->state != Request::State::kAnnounced)) {
      return;
    }
    const Called name = rank.pending[id];
    instances_[{name, rank.times[name] - 1}].disturbed = true;
    rank.queue->Cancel(id);
  }

  void BeginStep(int r) {
    Rank& rank = ranks_[r];
    const int step = rank.step++;
    for (int set = 0; set < rank.sets->size(); ++set) {
      if (!rank.sets->has(set)) continue;
      const std::vector<int>& members = rank.sets->members(set);
      if (!std::binary_search(members.begin(), members.end(), r)) continue;
      for (int t = 0; t < o_.tensors; ++t) {
        Signature s;
        s.name = StrCat("t", t);
        s.process_set = set;
        s.kind = t % 3 == 1 ? Kind::kAllgather : Kind::kAllreduce;
        s.dtype = DType::kFloat32;
        s.shapes = {{t * 40'000 + version_[{step, t}]}};
        const auto abandoned = abandoned_.find({s.process_set, s.name});
        if (rank.step == o_.steps && abandoned != abandoned_.end() &&
            abandoned->second.count(r) == 0) {
          continue;
        }
        if (s.kind == Kind::kAllgather) s.shapes = {{Pick(0, 5), t + 10 * version_[{step, t}]}};
        rank.to_do.push_back(s);
      }
    }
    if (o_.set_changes) ChangeSets(&rank, set_changes_[step]);
    std::shuffle(rank.to_do.begin(), rank.to_do.end(), random_);
  }

  // All ranks have the same sets at the same step.
  void ChangeSets(Rank* rank, const SetChange& change) {
    Signature s;
    s.name = kProcessSetsName;
    s.dtype = DType::kInt32;
    s.shapes = {{}};
    std::vector<int> removable;
    for (int set = 1; set < rank->sets->size(); ++set) {
      if (rank->sets->has(set)) removable.push_back(set);
    }
    rank->removing = 0;
    if (!change.ranks.empty() && rank->sets->Find(change.ranks) < 0) {
      s.kind = Kind::kAddProcessSet;
      s.ranks = change.ranks;
    } else if (!removable.empty()) {
      s.kind = Kind::kRemoveProcessSet;
      s.root = rank->removing = removable[change.which % removable.size()];
    } else {
      return;
    }
    rank->to_do.push_back(s);
  }

  void Stop(int r, int exit_status = 0) {
    ranks_[r].stopped = true;
    ranks_[r].to_do.clear();
    ranks_[r].loop->Stop(exit_status);
  }

  void Die(int r) {
    --deaths_left_;
    somebody_died_ = true;
    if (Pick(0, 2) == 0) return Stop(r, 3);
    ranks_[r].dead = true;
    Close(r, "it died");
  }

  void CheckEnd() {
    for (int r = 0; r < o_.ranks; ++r) {
      const Rank& rank = ranks_[r];
      if (rank.dead) continue;
      Check(rank.pending.empty(),
            StrCat("rank ", r, " waits for ever for '",
                   rank.pending.empty() ? "" : rank.pending.begin()->second.second, "'"));
      Check(rank.stopped && rank.over, StrCat("rank ", r, " does not end"));
      const Status failure = rank.loop->failure();
      Check(somebody_died_ || failure.ok() || failure.code() == Code::kShutdown,
            StrCat("rank ", r, ": ", failure));
      // At most once in full per name and shape, when there is room and nothing goes wrong.
      if (!o_.Calm()) continue;
      const uint64_t in_full = rank.loop->counters().reports_in_full;
      const uint64_t names =
          rank.sets->size() * o_.tensors + (o_.joiners ? 1 : 0) + (o_.set_changes ? o_.steps : 0);
      Check(in_full <= names, StrCat("rank ", r, " announced ", in_full, " in full of ", names));
    }
    for (const auto& [key, instance] : instances_) {
      const auto& [name, k] = key;
      const std::string about = StrCat("'", name.second, "' of set ", name.first, ", instance ", k);
      if (somebody_died_) continue;
      const int members = static_cast<int>(ranks_[0].sets->members(name.first).size());
      // Who has joined takes no part in set 0; in other sets, nobody can go on without it.
      const int present = o_.joiners && name.first == 0 ? instance.brought : members;
      Check(instance.ran == 0 || instance.ran == present,
            StrCat(about, " ran on ", instance.ran, " of ", present));
      if (instance.brought < present) continue;
      Check(!instance.refused || instance.ran == 0, StrCat(about, " was refused and ran"));
      Check(instance.disturbed || o_.leavers || instance.failed == 0,
            StrCat(about, " failed though nothing disturbed it"));
    }
  }

  const HistoryOptions o_;
  std::mt19937 random_;
  Config config_;
  std::unique_ptr<Topology> topology_;
  std::vector<Mail> mail_;
  std::vector<Rank> ranks_;
  std::vector<SetChange> set_changes_;          // by step
  std::map<std::pair<int, int>, int> version_;  // by step and tensor
  std::map<Called, std::set<int>> abandoned_;   // in the last step: who brings it
  std::map<std::pair<Called, int>, Instance> instances_;
  std::map<uint64_t, std::string> stream_;
  struct Collective {
    std::set<int> begun;  // ranks
    std::set<int> ended;
  };
  std::unordered_map<uint64_t, Collective> collectives_;  // by position in the stream
  Time now_{std::chrono::hours(1)};
  int deaths_left_ = 0;
  int given_up_joins_ = 0;
  bool somebody_died_ = false;
};

}  // namespace

std::string RunHistory(const HistoryOptions& options) {
  try {
    History(options).Run();
  } catch (const Wrong& wrong) {
    return wrong.text;
  }
  return "";
}

}  // namespace hvd
