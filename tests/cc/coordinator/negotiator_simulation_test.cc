// Thousands of random histories of the negotiator: 2 to 16 ranks announce, refuse,
// withdraw and leave, with every message delayed at random.
//
// The k-th time that a rank comes to a name belongs to instance k of that name.  Checked:
// - every request is answered exactly once, and every history ends;
// - of one instance either all ranks run, or none does;
// - an instance that a rank refused runs nowhere, and one that nobody disturbed runs;
// - every rank sees ascending positions of one stream, and a position is the same tensors
//   on every rank.
//
// A failing seed is printed.

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "tf_ops/coordinator/negotiator.h"

namespace hvd {
namespace {

using What = Announcement::What;

class History {
 public:
  explicit History(unsigned seed) : random_(seed) {
    world_.size = Pick(2, 16);
    world_.hosts.assign(world_.size, "h");
    std::vector<int> all(world_.size);
    std::iota(all.begin(), all.end(), 0);
    world_.process_sets.push_back(all);
    for (int sets = Pick(0, 2); sets > 0; --sets) {
      std::vector<int> some;
      for (int r : all) {
        if (Pick(0, 1)) some.push_back(r);
      }
      if (!some.empty()) world_.process_sets.push_back(some);
    }
    config_.fusion_threshold_bytes = Pick(0, 2) * 40;
    trouble_percent_ = Pick(0, 1) * Pick(0, 20);
    leavers_ = Pick(0, 3) == 0;
    steps_ = Pick(1, 6);
    tensors_ = Pick(1, 8);
    ranks_.resize(world_.size);
    negotiator_.emplace(world_, config_);
  }

  void Run() {
    for (int turns = 0;; ++turns) {
      ASSERT_LT(turns, 500000) << "the history does not end";
      std::vector<int> able;
      for (int r = 0; r < world_.size; ++r) {
        if (!ranks_[r].finished || !ranks_[r].to_coordinator.empty() || !ranks_[r].stream.empty()) {
          able.push_back(r);
        }
      }
      if (able.empty() && !negotiator_->has_output()) break;
      if (able.empty() || Pick(0, 3) == 0) Flush();
      if (!able.empty()) Act(able[Pick(0, static_cast<int>(able.size()) - 1)]);
    }
    EXPECT_FALSE(negotiator_->waiting() && !leavers_) << "an entry is left over";
    for (const Rank& rank : ranks_) EXPECT_TRUE(rank.waiting.empty()) << "a request is lost";
    for (const auto& [key, instance] : instances_) {
      const std::string about = key.name + " of set " + std::to_string(key.set) + ", instance " +
                                std::to_string(key.instance);
      const int members = static_cast<int>(world_.process_sets[key.set].size());
      EXPECT_TRUE(instance.ran == 0 || instance.ran == members) << about << " ran on some only";
      if (instance.refused) {
        EXPECT_EQ(instance.ran, 0) << about << " was refused and ran";
      }
      if (!instance.disturbed && !leavers_) {
        EXPECT_EQ(instance.failed, 0) << about << " failed though nothing disturbed it";
      }
    }
  }

 private:
  struct Key {
    int set;
    std::string name;
    int instance;
    bool operator<(const Key& o) const {
      return std::tie(set, name, instance) < std::tie(o.set, o.name, o.instance);
    }
  };
  struct Instance {
    int ran = 0;
    int failed = 0;
    bool refused = false;
    bool disturbed = false;  // refused or withdrawn by somebody
  };
  using Name = std::pair<int, std::string>;
  struct Rank {
    int step = 0;
    std::vector<Signature> to_do;  // of this step, in this rank's order
    std::map<Name, int> waiting;   // announced, not answered: its instance
    std::map<Name, int> times;     // how often it came to a name
    std::deque<Announcement> to_coordinator;
    std::deque<Response> stream;  // from the coordinator
    uint64_t last_sequence = 0;
    bool finished = false;
  };

  int Pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }

  void Act(int r) {
    Rank& rank = ranks_[r];
    const int choice = Pick(0, 2);
    if (choice == 0 && !rank.to_coordinator.empty()) {
      negotiator_->Hear(r, rank.to_coordinator.front(), {});
      rank.to_coordinator.pop_front();
    } else if (choice == 1 && !rank.stream.empty()) {
      Answer(r, rank.stream.front());
      rank.stream.pop_front();
    } else if (!rank.finished) {
      Proceed(r);
    }
  }

  void Proceed(int r) {
    Rank& rank = ranks_[r];
    if (!rank.to_do.empty()) {
      const Signature s = rank.to_do.back();
      rank.to_do.pop_back();
      const Name name{s.process_set, s.name};
      const int instance = rank.times[name]++;
      Instance& i = instances_[{s.process_set, s.name, instance}];
      if (Pick(0, 99) < trouble_percent_) {
        i.refused = i.disturbed = true;
        rank.to_coordinator.push_back({What::kRefused, s, "no"});
      } else {
        rank.waiting[name] = instance;
        rank.to_coordinator.push_back({What::kReady, s, {}});
      }
    } else if (leavers_ && Pick(0, 9) == 0) {
      Leave(r);
    } else if (!rank.waiting.empty()) {
      if (Pick(0, 99) >= trouble_percent_) return;
      const auto it =
          std::next(rank.waiting.begin(), Pick(0, static_cast<int>(rank.waiting.size()) - 1));
      if (!withdrawn_.insert({r, it->first, it->second}).second) return;  // once
      instances_[{it->first.first, it->first.second, it->second}].disturbed = true;
      Signature s;
      s.kind = Kind::kAllreduce;
      std::tie(s.process_set, s.name) = it->first;
      rank.to_coordinator.push_back({What::kWithdrawn, s, "cancelled"});
    } else if (rank.step == steps_) {
      Leave(r);
    } else {
      ++rank.step;
      BeginStep(r);
    }
  }

  // As a rank that ends in order: what it announced is heard first, what was decided is sent
  // first, and it answers all of that before it goes.
  void Leave(int r) {
    Rank& rank = ranks_[r];
    rank.finished = true;
    rank.to_do.clear();
    if (!leavers_) return;
    for (; !rank.to_coordinator.empty(); rank.to_coordinator.pop_front()) {
      negotiator_->Hear(r, rank.to_coordinator.front(), {});
    }
    Flush();
    negotiator_->Leave(r);
    Flush();
  }

  void BeginStep(int r) {
    Rank& rank = ranks_[r];
    for (size_t set = 0; set < world_.process_sets.size(); ++set) {
      const std::vector<int>& members = world_.process_sets[set];
      if (!std::binary_search(members.begin(), members.end(), r)) continue;
      for (int t = 0; t < tensors_; ++t) {
        Signature s;
        s.name = "t" + std::to_string(t);
        s.process_set = static_cast<int>(set);
        s.kind = Kind::kAllreduce;
        s.dtype = DType::kFloat32;
        s.shape = {t};
        rank.to_do.push_back(s);
      }
    }
    std::shuffle(rank.to_do.begin(), rank.to_do.end(), random_);
  }

  void Flush() {
    for (const Negotiator::Outgoing& out : negotiator_->Flush()) {
      for (int r : out.recipients) ranks_[r].stream.push_back(out.response);
    }
  }

  void Answer(int r, const Response& response) {
    Rank& rank = ranks_[r];
    EXPECT_GT(response.sequence, rank.last_sequence);
    rank.last_sequence = response.sequence;
    std::string tensors;
    for (const Signature& s : response.tensors) {
      tensors += s.name + ",";
      const auto it = rank.waiting.find({s.process_set, s.name});
      ASSERT_NE(it, rank.waiting.end())
          << "rank " << r << " is answered for " << s.name << " again";
      Instance& instance = instances_[{s.process_set, s.name, it->second}];
      ++(response.status.ok() ? instance.ran : instance.failed);
      rank.waiting.erase(it);
    }
    EXPECT_EQ(stream_.emplace(response.sequence, tensors).first->second, tensors);
  }

  std::mt19937 random_;
  World world_;
  Config config_;
  std::optional<Negotiator> negotiator_;
  int trouble_percent_ = 0;
  bool leavers_ = false;
  int steps_ = 0;
  int tensors_ = 0;
  std::vector<Rank> ranks_;
  std::map<Key, Instance> instances_;
  std::set<std::tuple<int, Name, int>> withdrawn_;
  std::map<uint64_t, std::string> stream_;
};

TEST(NegotiatorSimulation, EveryHistoryEndsWell) {
  for (unsigned seed = 0; seed < 3000; ++seed) {
    History history(seed);
    history.Run();
    if (testing::Test::HasFailure()) FAIL() << "seed " << seed;
  }
}

}  // namespace
}  // namespace hvd
