#include "tests/cc/fuzz/job.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <set>
#include <vector>

#include "tests/cc/coordinator/simulated_rank.h"
#include "tests/cc/fuzz/mutator.h"
#include "tf_ops/collectives/collective.h"
#include "tf_ops/coordinator/control_loop.h"

namespace hvd {
namespace {

// Rank 0 hears two leaders; rank 3 is a leaf below one of them.
const std::vector<std::string> kHosts = {"a", "a", "b", "b", "c", "c"};
constexpr int kRanks = 6;
constexpr int kActs = 600;

// Thrown by a check; caught by RunDamagedJob.
struct Wrong {
  std::string text;
};

void Check(bool ok, const std::string& text) {
  if (!ok) throw Wrong{text};
}

// The tensors of the job.  Each rank brings its own rows of an allgather.
Signature TensorOf(int number, int rows) {
  Signature s;
  s.name = StrCat("t", number);
  s.process_set = number % 5 == 4 ? 1 : 0;
  s.dtype = DType::kFloat32;
  s.kind = number == 10      ? Kind::kReducescatter
           : number % 4 == 1 ? Kind::kAllgather
           : number % 4 == 2 ? Kind::kBroadcast
           : number == 7     ? Kind::kBarrier
           : number == 8     ? Kind::kAlltoall
           : number == 11    ? Kind::kJoin
           : number == 12    ? Kind::kAddProcessSet
           : number == 13    ? Kind::kRemoveProcessSet
                             : Kind::kAllreduce;
  s.root = number == 2 ? 5 : 2;
  s.gradient = number == 0;
  s.grouped = number == 3 || number == 5;
  switch (s.kind) {
    case Kind::kAllgather:
      s.shapes = {{rows, 3}};
      break;
    case Kind::kAlltoall:
      s.splits = {0, rows, 1, 2, 0, rows};
      s.shapes = {{2 * rows + 3, 2}};
      break;
    case Kind::kBarrier:
      break;
    case Kind::kJoin:
    case Kind::kAddProcessSet:
    case Kind::kRemoveProcessSet:
      s.name = FindCollective(s.kind)->fixed_name;
      s.dtype = DType::kInt32;
      s.process_set = 0;
      s.shapes = {{}};
      if (s.kind == Kind::kAddProcessSet) s.ranks = {0, 2, 4};
      if (s.kind == Kind::kRemoveProcessSet) s.root = rows;
      break;
    default:
      s.shapes = {{number == 3 ? 100'000 : 6}};
  }
  if (s.grouped) s.shapes.push_back({rows, 3});
  if (s.kind == Kind::kAllreduce && s.grouped) s.shapes[1] = {4};
  return s;
}
constexpr int kTensors = 14;

struct Rank : SimulatedRank {
  std::map<uint64_t, std::shared_ptr<Request>> pending;
  std::map<const Request*, int64_t> run;  // elements that were run in parts
  bool stopped = false;
  bool over = false;
};

class Job {
 public:
  Job(unsigned seed, JobTotals* totals)
      : mutator_(seed), totals_(*totals), damage_one_in_(mutator_.Pick(1, 4) * 25) {
    config_.cache_capacity = mutator_.Pick(0, 2) * 4;
    config_.fusion_threshold_bytes = mutator_.Pick(0, 2) * 100'000;
    config_.heartbeat_timeout_s = config_.mismatch_time_s = 1e8;
    config_.stall_check_disable = true;
    World world;
    world.size = kRanks;
    world.hosts = kHosts;
    world.process_sets = {std::vector<int>(kRanks), {1, 2, 3}, {}};
    std::iota(world.process_sets[0].begin(), world.process_sets[0].end(), 0);
    mail_.resize(kRanks);
    ranks_ = std::vector<Rank>(kRanks);
    for (int r = 0; r < kRanks; ++r) {
      ranks_[r].Begin(world, r, config_, &mail_, now_);
    }
  }

  void Run() {
    for (int act = 0; act < kActs; ++act) Act(mutator_.Pick(0, kRanks - 1));
    for (int r = 0; r < kRanks; ++r) Stop(r);
    // Most end by themselves; whose neighbor's last words were swallowed, by its loss.
    for (int turn = 0; turn < 40; ++turn) {
      for (int r = 0; r < kRanks; ++r) Settle(r);
    }
    for (int r = 0; r < kRanks; ++r) Lose(r);
    for (int r = 0; r < kRanks; ++r) {
      Settle(r);
      Check(ranks_[r].over, StrCat("rank ", r, " does not end"));
      Check(ranks_[r].pending.empty(), StrCat("rank ", r, " waits for ever"));
    }
  }

 private:
  void Act(int r) {
    Rank& rank = ranks_[r];
    now_ += std::chrono::milliseconds(mutator_.OneIn(20) ? 120 : 1);
    const int choice = mutator_.Pick(0, 9);
    if (choice < 4) {
      if (!rank.stopped) Bring(r);
    } else if (choice < 8) {
      if (!rank.over) TakeMail(r);
    } else if (!mutator_.OneIn(40)) {
      RunOne(r);
    } else if (rank.pending.empty() || mutator_.OneIn(8)) {
      if (mutator_.OneIn(4)) Stop(r);
    } else {
      const int which = mutator_.Pick(0, static_cast<int>(rank.pending.size()) - 1);
      rank.queue->Cancel(std::next(rank.pending.begin(), which)->first);
    }
  }

  void Bring(int r) {
    Rank& rank = ranks_[r];
    const Signature s = TensorOf(mutator_.Pick(0, kTensors - 1), mutator_.Pick(0, 3));
    // As Runtime checks it.
    if (!rank.sets->has(s.process_set) || rank.sets->Find(s.ranks) >= 0) return;
    if (s.kind == Kind::kRemoveProcessSet && (s.root == 0 || !rank.sets->has(s.root))) return;
    const std::vector<int>& members = rank.sets->members(s.process_set);
    if (!std::binary_search(members.begin(), members.end(), r)) return;
    Check(Validate(s, members, r).ok(), "the test brings what no rank may bring");
    if (mutator_.OneIn(200)) return rank.queue->Refuse(s, "no");
    auto request = std::make_shared<Request>();
    request->signature = s;
    Request* const raw = request.get();
    request->done = [this, r, raw](const Status& status) {
      Check(ranks_[r].pending.erase(raw->id) == 1, StrCat("rank ", r, ": done twice"));
      if (status.ok()) ++totals_.ran;
    };
    uint64_t id = 0;
    if (rank.queue->Add(request, &id).ok()) rank.pending[id] = std::move(request);
  }

  void Stop(int r) {
    if (std::exchange(ranks_[r].stopped, true)) return;
    ranks_[r].loop->Stop(0);
  }

  void TakeMail(int r) {
    std::vector<ControlEvent> events;
    if (std::exchange(mail_[r].bell, false)) {
      events.push_back({ControlEvent::Type::kWake, r, {}, {}});
    }
    for (auto& [peer, queue] : mail_[r].from) {
      for (int n = mutator_.Pick(0, 3); n > 0 && !queue.empty(); --n) {
        ControlEvent event = std::move(queue.front());
        queue.pop_front();
        if (event.type == ControlEvent::Type::kFrame && mutator_.OneIn(damage_one_in_)) {
          Turn(r, std::exchange(events, {}));
          TakeDamaged(r, event);
        } else {
          if (event.type == ControlEvent::Type::kFrame) seen_.push_back(event.frame);
          events.push_back(std::move(event));
        }
      }
    }
    Turn(r, events);
  }

  // The frame comes otherwise than it was sent, in a turn of its own.
  void TakeDamaged(int r, ControlEvent event) {
    ++totals_.damaged;
    const std::string sent = event.frame;
    const std::string other =
        seen_.empty() ? sent : seen_[mutator_.Pick(0, static_cast<int>(seen_.size()) - 1)];
    Frame frame;
    switch (mutator_.Pick(0, 5)) {
      case 0:
        event.frame = mutator_.DamageBytes(sent, other);
        break;
      case 1:
        event.frame = other;
        break;
      case 2:
        event.frame = Encode(mutator_.RandomFrame());
        break;
      case 3:
        return;  // swallowed
      default:
        Check(Decode(sent, &frame), "a rank sent what cannot be read");
        mutator_.DamageField(&frame);
        event.frame = Encode(frame);
    }
    Rank& rank = ranks_[r];
    const bool well = rank.loop->failure().ok();
    Turn(r, {event});
    const Status failure = rank.loop->failure();
    if (well && !failure.ok()) {
      ++totals_.noticed;
      // What another rank says of its own reasons is its own affair.
      const bool readable = Decode(event.frame, &frame);
      const bool says_why = readable && frame.type == FrameType::kAbort && !frame.status.ok();
      const bool says_end = readable && frame.type == FrameType::kCutOff;
      const std::string who = rank.world.RankText(event.peer);
      Check(says_why || says_end || failure.message().find(who) != std::string::npos,
            StrCat("rank ", r, " does not name ", who, ": ", failure));
    }
    // It may come as it was sent as well: repeated, or out of order.
    if (mutator_.OneIn(2)) Turn(r, {{ControlEvent::Type::kFrame, event.peer, sent, {}}});
  }

  void Turn(int r, const std::vector<ControlEvent>& events) {
    Rank& rank = ranks_[r];
    if (rank.over || rank.loop->Turn(events, now_)) return;
    rank.over = true;
    for (int peer : Topology(kHosts).neighbors(r)) {
      mail_[peer].from[r].push_back({ControlEvent::Type::kClosed, r, {}, "it ended"});
    }
  }

  // Runs what there is to run, and takes in what has come.
  void Settle(int r) {
    for (bool more = true; more;) {
      more = RunOne(r);
      now_ += std::chrono::milliseconds(1);
      if (!ranks_[r].over) TakeMail(r);
    }
    if (!ranks_[r].over) Turn(r, {});
  }

  void Lose(int r) {
    if (ranks_[r].over) return;
    std::vector<ControlEvent> events;
    for (auto& [peer, queue] : mail_[r].from) {
      const bool closed = std::any_of(queue.begin(), queue.end(), [](const ControlEvent& event) {
        return event.type == ControlEvent::Type::kClosed;
      });
      if (!closed && !ranks_[peer].over) {
        events.push_back({ControlEvent::Type::kClosed, peer, {}, "it is lost"});
      }
    }
    while (!ranks_[r].over && HasMail(r)) TakeMail(r);
    Turn(r, events);
  }

  bool HasMail(int r) const {
    return std::any_of(mail_[r].from.begin(), mail_[r].from.end(),
                       [](const auto& item) { return !item.second.empty(); });
  }

  // What the data plane would do; false: there is nothing.
  bool RunOne(int r) {
    Rank& rank = ranks_[r];
    if (rank.runner.posted.empty()) return false;
    SimulatedRunner::Work work = std::move(rank.runner.posted.front());
    rank.runner.posted.pop_front();
    const Response& response = work.response;
    Status status = response.status;
    if (!rank.runner.aborted.ok()) status = rank.runner.aborted;
    if (status.ok()) CheckRunnable(r, work);
    if (response.is_last_part()) {
      for (const auto& request : work.requests) rank.queue->Finish(request, status);
    }
    rank.loop->OnProgress();
    return true;
  }

  // Everything that the data plane indexes by, or moves bytes by, fits the requests.
  void CheckRunnable(int r, const SimulatedRunner::Work& work) {
    Rank& rank = ranks_[r];
    const Response& response = work.response;
    const std::string about = StrCat("rank ", r, ", position ", response.sequence, ": ");
    Check(rank.sets->knew(response.process_set), about + "no such process set");
    const std::vector<int>& members = rank.sets->members(response.process_set);
    const size_t me = std::find(members.begin(), members.end(), r) - members.begin();
    Check(me < members.size(), about + "of a set without this rank");
    Check(response.sizes.size() == response.tensors.size(), about + "sizes");
    const std::vector<int>& absent = response.absent;
    Check(!std::binary_search(absent.begin(), absent.end(), r), about + "without this rank");
    const int n = static_cast<int>(members.size());
    const Signature& first = response.first();
    for (size_t i = 0; i < work.requests.size(); ++i) {
      const Signature& mine = work.requests[i]->signature;
      totals_.cached_in += response.tensors[i].id != 0 && !response.tensors[i].cache;
      Check(mine.process_set == response.process_set, about + "of another set");
      Check(Agree(mine, r, *response.tensors[i].signature, members[0]).ok(), about + "differs");
      Check(mine.kind == first.kind && mine.dtype == first.dtype &&
                (mine.op == first.op || mine.kind != Kind::kAllreduce),
            about + "differs from its neighbor");
      const std::vector<int64_t> own = SizesOf(mine);
      Check(response.sizes[i].size() == own.size() * n, about + "sizes");
      const auto told = response.sizes[i].begin() + me * own.size();
      Check(std::equal(own.begin(), own.end(), told), about + "not this rank's sizes");
      for (int64_t size : response.sizes[i]) Check(size >= 0, about + "a negative size");
      if (response.part_count < 0) continue;
      Check(response.part_begin >= 0 && response.part_count <= mine.count() - response.part_begin,
            about + "a part beyond its tensor");
      int64_t& run = rank.run[work.requests[i].get()];
      Check(response.part_begin == run, about + "a part out of order");
      run += response.part_count;
      if (response.is_last_part()) rank.run.erase(work.requests[i].get());
    }
  }

  Mutator mutator_;
  JobTotals& totals_;
  const int damage_one_in_;
  Config config_;
  std::vector<Mail> mail_;
  std::vector<std::string> seen_;
  std::vector<Rank> ranks_;
  Clock::time_point now_{std::chrono::hours(1)};
};

}  // namespace

std::string RunDamagedJob(unsigned seed, JobTotals* totals) {
  try {
    Job(seed, totals).Run();
  } catch (const Wrong& wrong) {
    return wrong.text;
  }
  return "";
}

}  // namespace hvd
