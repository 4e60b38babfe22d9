// Frames that can be read, but that no rank may send: each ends the job, and the text names
// who sent it.  Rank 2, which gets them, has rank 3 below it and rank 0 above.

#include "tf_ops/coordinator/frame_check.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/cc/coordinator/simulated_rank.h"
#include "tf_ops/base/log.h"
#include "tf_ops/collectives/collective.h"
#include "tf_ops/coordinator/control_loop.h"

namespace hvd {
namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

Signature Of(Kind kind, const std::string& name, std::vector<int64_t> shape) {
  Signature s;
  s.name = name;
  s.kind = kind;
  s.dtype = DType::kFloat32;
  s.shapes = {std::move(shape)};
  return s;
}

Signature Changing(Kind kind, int root) {
  Signature s = Of(kind, kProcessSetsName, {});
  s.dtype = DType::kInt32;
  s.root = root;
  return s;
}
Signature Adding(std::vector<int> ranks, int id = 0) {
  Signature s = Changing(Kind::kAddProcessSet, id);
  s.ranks = std::move(ranks);
  return s;
}
Signature Removing(int id) { return Changing(Kind::kRemoveProcessSet, id); }

// As many tensors as one request.
Signature Group(Signature s, size_t tensors) {
  s.grouped = true;
  s.shapes.assign(tensors, {2});
  return s;
}

class FrameCheckTest : public testing::Test {
 protected:
  // Makes a rank anew; it has announced "sum" and "gather".
  void Make(int r) {
    SetLogging(LogLevel::kOff, false, 0);
    loop_.reset();
    mail_ = std::vector<Mail>(4);
    runner_ = std::make_unique<SimulatedRunner>();
    world_ = {};
    world_.rank = r;
    world_.size = 4;
    world_.hosts = {"a", "a", "b", "b"};
    world_.process_sets = {{0, 1, 2, 3}, {0, 1}, {}};
    sets_ = std::make_unique<ProcessSets>(world_);
    fabric_ = std::make_unique<SimulatedFabric>(r, &mail_);
    queue_ = std::make_unique<RequestQueue>(1, [] {});
    loop_ = std::make_unique<ControlLoop>(world_, sets_.get(), config_, fabric_.get(), queue_.get(),
                                          runner_.get());
    loop_->Begin(now_);
    done_ = 0;
    for (const Signature& s : {sum_, gather_}) {
      auto request = std::make_shared<Request>();
      request->signature = s;
      request->done = [this](const Status&) { ++done_; };
      uint64_t id;
      ASSERT_TRUE(queue_->Add(request, &id).ok());
    }
    EXPECT_TRUE(loop_->Turn({}, now_));
  }

  void Hear(int peer, Frame frame) {
    frame.generation = 1;
    loop_->Turn({{ControlEvent::Type::kFrame, peer, Encode(frame), {}}}, now_);
  }

  void ExpectAbort(const std::string& about, int peer, const std::string& words) {
    const Status failure = loop_->failure();
    EXPECT_EQ(failure.code(), Code::kPeerLost) << about;
    for (const std::string& text : {world_.RankText(peer) + " sent ", words}) {
      EXPECT_NE(failure.message().find(text), std::string::npos) << about << ": " << failure;
    }
    // What is under way is the runner's to end; all else has ended.
    for (auto& work : std::exchange(runner_->posted, {})) {
      if (!work.response.is_last_part()) continue;
      for (const auto& request : work.requests) queue_->Finish(request, failure);
    }
    EXPECT_EQ(done_, 2) << about;
  }

  static Frame Reporting(Report report) {
    Frame frame;
    frame.type = FrameType::kReports;
    frame.reports.push_back(std::move(report));
    return frame;
  }
  static Frame Announcing(int rank, const Signature& s,
                          Announcement::What what = Announcement::What::kReady) {
    return Reporting({Report::What::kAnnouncement, rank, {}, {what, s, "why"}});
  }
  static Frame Responding(std::vector<Response> responses) {
    Frame frame;
    frame.type = FrameType::kResponses;
    frame.responses = std::move(responses);
    return frame;
  }
  static Frame Naming(FrameType type, int rank) { return {type, 0, {}, {}, rank, {}}; }

  static Response Running(const Signature& s, std::vector<int64_t> rows, CacheId id = 0) {
    Response response;
    response.sequence = 1;
    response.tensors.push_back({id, id != 0, std::make_shared<const Signature>(s)});
    response.sizes.push_back(std::move(rows));
    return response;
  }
  Response Part(int64_t begin, int64_t count) {
    Response response = Running(sum_, {});
    response.sequence = 1 + begin;
    response.part_begin = begin;
    response.part_count = count;
    return response;
  }

  const Signature sum_ = Of(Kind::kAllreduce, "sum", {8});
  const Signature gather_ = Of(Kind::kAllgather, "gather", {2, 3});
  const Clock::time_point now_{std::chrono::hours(1)};
  Config config_;
  World world_;
  std::unique_ptr<ProcessSets> sets_;
  std::vector<Mail> mail_;
  std::unique_ptr<SimulatedRunner> runner_;
  std::unique_ptr<SimulatedFabric> fabric_;
  std::unique_ptr<RequestQueue> queue_;
  std::unique_ptr<ControlLoop> loop_;
  int done_ = 0;
};

struct Case {
  const char* what;
  Frame frame;
  const char* words;
};

TEST_F(FrameCheckTest, FromBelow) {
  const auto with = [&](auto change) {
    Signature s = sum_;
    change(&s);
    return Announcing(3, s);
  };
  const std::vector<Case> cases = {
      {"responses", Responding({Running(sum_, {})}), "the wrong way"},
      {"a farewell", Naming(FrameType::kFarewell, 3), "the wrong way"},
      {"a goodbye for another", Naming(FrameType::kGoodbye, 1), "cannot speak for"},
      {"an abort of no reason", Naming(FrameType::kAbort, 0), "without a reason"},
      {"word of another", Announcing(1, sum_), "cannot speak for"},
      {"an alltoall without splits", with([](Signature* s) { s->kind = Kind::kAlltoall; }),
       "splits []"},
      {"a join by another name", with([](Signature* s) { s->kind = Kind::kJoin; }), "<join>"},
      {"a set of no ranks", Announcing(3, Adding({})), "one or more"},
      {"a set of a rank twice", Announcing(3, Adding({1, 1})), "each once"},
      {"a set of a rank that is none", Announcing(3, Adding({1, 4})), "no rank 4"},
      {"the end of the set of all", Announcing(3, Removing(0)), "which stays"},
      {"a group of none", with([](Signature* s) { *s = Group(*s, 0); }), "0 tensors"},
      {"two tensors and no group", with([](Signature* s) { s->shapes = {{1}, {1}}; }), "2 tensors"},
      {"a group of barriers", with([](Signature* s) {
         *s = Group(*s, 1);
         s->kind = Kind::kBarrier;
       }),
       "1 tensors"},
      {"no name", with([](Signature* s) { s->name = ""; }), "name is empty"},
      {"a negative dimension", with([](Signature* s) { s->shapes[0] = {-1}; }), "[-1]"},
      {"a huge shape", with([](Signature* s) { s->shapes[0] = {kMost, kMost}; }), "2^63"},
      {"no rows", with([](Signature* s) { *s = Of(Kind::kAllgather, "g", {}); }), "scalar"},
      {"no such set", with([](Signature* s) { s->process_set = 3; }), "process set 3"},
      {"a negative set", with([](Signature* s) { s->process_set = -1; }), "process set -1"},
      {"a set of an older generation", with([](Signature* s) { s->process_set = 2; }),
       "process set 2"},
      {"a set without it", with([](Signature* s) { s->process_set = 1; }), "not in process set"},
      {"a withdrawal of no join",
       Announcing(3, Of(Kind::kJoin, "j", {}), Announcement::What::kWithdrawn), "<join>"},
      {"no id", Reporting({Report::What::kSubtreeReady, 3, {{0, {}}}, {}}), "which is none"},
      {"rows of a sum", Reporting({Report::What::kSubtreeReady, 3, {{1, {5}}}, {}}), "id 1"},
      {"rows of a sum by rank", Reporting({Report::What::kRankReady, 3, {{1, {5}}}, {}}), "id 1"},
      {"no rows", Reporting({Report::What::kSubtreeReady, 3, {{2, {}}}, {}}), "id 2"},
      {"rows of two", Reporting({Report::What::kSubtreeReady, 3, {{2, {1, 1}}}, {}}), "id 2"},
      {"negative rows", Reporting({Report::What::kRankReady, 3, {{2, {-1}}}, {}}), "id 2"},
      {"too many rows", Reporting({Report::What::kRankReady, 3, {{2, {kMost}}}, {}}), "id 2"},
      {"a set with none below", Reporting({Report::What::kSubtreeReady, 3, {{3, {}}}, {}}),
       "no rank of process set 1"},
      {"a set of another", Reporting({Report::What::kRankReady, 3, {{3, {}}}, {}}),
       "no rank of process set 1"},
  };
  for (const Case& c : cases) {
    Make(2);
    // Ids 1 and 2 are known here, and 3, of a set without this rank.
    Response sum = Running(sum_, {}, 1), gather = Running(gather_, {2, 2, 2, 2}, 2);
    Signature other = sum_;
    other.process_set = 1;
    Response others = Running(other, {}, 3);
    others.process_set = 1;
    gather.sequence = 2;
    others.sequence = 3;
    Hear(0, Responding({sum, gather, others}));
    ASSERT_TRUE(loop_->failure().ok()) << loop_->failure();
    Hear(3, c.frame);
    ExpectAbort(c.what, 3, c.words);
  }
}

TEST_F(FrameCheckTest, FromAbove) {
  const auto sum = [&](auto change) {
    Response response = Running(sum_, {});
    change(&response);
    return Responding({response});
  };
  const auto of = [&](Signature s) { return Responding({Running(s, {})}); };
  const auto altered = [&](auto change) {
    Signature s = sum_;
    change(&s);
    return s;
  };
  Response twice = Running(sum_, {}), known = Running(sum_, {}, 5), fused = Running(sum_, {});
  Response again = Running(gather_, {2, 2, 2, 2}, 5);
  twice.tensors.push_back(twice.tensors[0]);
  twice.sizes.emplace_back();
  again.sequence = 2;
  fused.tensors.push_back({0, false, std::make_shared<const Signature>(gather_)});
  fused.sizes.push_back({2, 2, 2, 2});
  const std::vector<Case> cases = {
      {"reports", Announcing(3, sum_), "the wrong way"},
      {"a goodbye", Naming(FrameType::kGoodbye, 0), "the wrong way"},
      {"a farewell to another", Naming(FrameType::kFarewell, 1), "cannot speak for"},
      {"a farewell to who stays", Naming(FrameType::kFarewell, 2), "has not left"},
      {"the end of another", Naming(FrameType::kCutOff, 1), "cannot speak for"},
      {"the end of no rank", Naming(FrameType::kCutOff, 9), "cannot speak for"},
      {"its own end", Naming(FrameType::kCutOff, 2), "cannot speak for"},
      {"no such set", sum([](Response* r) { r->process_set = 7; }), "cannot speak for"},
      {"a set of an older generation", sum([](Response* r) { r->process_set = 2; }),
       "cannot speak for"},
      {"for no rank", sum([](Response* r) { r->only = {9}; }), "cannot speak for"},
      {"for some", sum([](Response* r) { r->only = {2}; }), "a part of its process set"},
      {"position 0", sum([](Response* r) { r->sequence = 0; }), "after position 0"},
      {"an id that is not there", sum([](Response* r) { r->tensors[0] = {9, false, nullptr}; }),
       "in the cache"},
      {"an id twice", Responding({known, again}), "in the cache"},
      {"another set inside", of(altered([](Signature* s) { s->process_set = 1; })), "of 1"},
      {"a set that is none inside", of(altered([](Signature* s) { s->process_set = 9; })), "of 9"},
      {"a join by another name", of(altered([](Signature* s) { s->kind = Kind::kJoin; })),
       "<join>"},
      {"a set by another name", of(altered([](Signature* s) {
         s->kind = Kind::kAddProcessSet;
         s->ranks = {1};
       })),
       "<process sets>"},
      {"a set under a wrong number", of(Adding({1}, 2)), "adds process set 2 to 3"},
      {"the end of a set that is none", of(Removing(2)), "which is none"},
      {"a set that nobody asked for", of(Adding({1}, 3)), "not announced"},
      {"without all", sum([](Response* r) { r->absent = {0, 1, 2, 3}; }), "to run without"},
      {"without a rank twice", sum([](Response* r) { r->absent = {1, 1}; }), "to run without"},
      {"without a rank that is none", sum([](Response* r) { r->absent = {9}; }), "to run without"},
      {"another divisor", sum([](Response* r) {
         r->absent = {1};
         r->divisor = 4;
       }),
       "divide by 4"},
      {"another kind", of(altered([](Signature* s) { s->kind = Kind::kBroadcast; })),
       "does not fit"},
      {"another dtype", of(altered([](Signature* s) { s->dtype = DType::kFloat64; })),
       "does not fit"},
      {"another shape", of(altered([](Signature* s) { s->shapes[0] = {9}; })), "does not fit"},
      {"a tensor of others", of(altered([](Signature* s) { s->name = "x"; })), "not announced"},
      {"a tensor twice", Responding({twice}), "not announced"},
      {"a bucket of two kinds", Responding({fused}), "travels with"},
      {"rows of a sum", sum([](Response* r) { r->sizes = {{1, 1, 1, 1}}; }), "sizes of 4 ranks"},
      {"rows of two ranks", Responding({Running(gather_, {2, 2})}), "sizes of 4 ranks"},
      {"negative rows", Responding({Running(gather_, {2, 2, 2, -1})}), "sizes of 4 ranks"},
      {"rows beyond all", Responding({Running(gather_, {2, 2, 2, kMost})}), "sizes of 4 ranks"},
      {"not this rank's rows", Responding({Running(gather_, {2, 2, 3, 2})}),
       "sizes [3] instead of [2]"},
      {"a part of nothing", Responding({Part(0, 0)}), "0 elements from 0 on"},
      {"a part beyond the end", Responding({Part(0, 9)}), "9 elements"},
      {"a part that wraps", Responding({Part(4, kMost)}), "elements from 4 on"},
      {"the second part first", Responding({Part(4, 4)}), "from element 4 on instead of 0"},
      {"a part twice", Responding({Part(0, 4), Part(2, 4)}), "from element 2 on instead of 4"},
      {"a part, then all",
       Responding({Part(0, 4),
                   [&] {
                     Response all = Running(sum_, {});
                     all.sequence = 9;
                     return all;
                   }()}),
       "from element 0 on instead of 4"},
      {"a failed part", sum([](Response* r) {
         r->status = Status::Internal("no");
         r->part_begin = r->part_count = 4;
       }),
       "fails a part"},
  };
  for (const Case& c : cases) {
    Make(2);
    Hear(0, c.frame);
    ExpectAbort(c.what, 0, c.words);
  }
}

TEST_F(FrameCheckTest, AnEndAmidstThePartsOfATensor) {
  Make(2);
  Hear(0, Responding({Part(0, 4)}));
  Hear(0, Naming(FrameType::kCutOff, 0));
  ExpectAbort("cut off", 0, "amidst the parts");
  Make(2);
  Hear(0, Responding({Part(0, 4)}));
  loop_->Stop(0);
  loop_->Turn({}, now_);
  Hear(0, Naming(FrameType::kFarewell, 2));
  ExpectAbort("farewell", 0, "amidst the parts");
}

// A request may be refused for just what a ready one must not have.
TEST_F(FrameCheckTest, ARefusalMayBeOfAnything) {
  Make(2);
  Hear(3, Announcing(3, Of(Kind::kAlltoall, "", {-1}), Announcement::What::kRefused));
  Signature elsewhere = sum_;
  elsewhere.process_set = 1;
  Hear(3, Announcing(3, elsewhere, Announcement::What::kRefused));
  // Nor is it anybody's fault that an id was evicted on the way.
  Hear(3, Reporting({Report::What::kSubtreeReady, 3, {{77, {1, 2, 3}}}, {}}));
  EXPECT_TRUE(loop_->failure().ok()) << loop_->failure();
}

// What was on its way when its set went is dropped.
TEST_F(FrameCheckTest, WordOfASetThatWasRemoved) {
  Make(2);
  const Signature removing = Removing(1);
  auto request = std::make_shared<Request>();
  request->signature = removing;
  request->done = [](const Status&) {};
  uint64_t id;
  ASSERT_TRUE(queue_->Add(request, &id).ok());
  loop_->Turn({}, now_);
  Hear(0, Responding({Running(removing, {})}));
  EXPECT_FALSE(sets_->has(1));
  Signature on_it = sum_;
  on_it.process_set = 1;
  Hear(3, Announcing(3, on_it));
  EXPECT_TRUE(loop_->failure().ok()) << loop_->failure();
  Response late = Running(on_it, {});
  late.process_set = 1;
  late.sequence = 2;
  Hear(0, Responding({late}));
  ExpectAbort("a response on it", 0, "cannot speak for");
}

}  // namespace
}  // namespace hvd
