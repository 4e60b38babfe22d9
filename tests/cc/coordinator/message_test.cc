#include "tf_ops/coordinator/message.h"

#include <gtest/gtest.h>

#include <random>

namespace hvd {
namespace {

Frame Sample() {
  Signature s;
  s.name = "dense/kernel";
  s.process_set = 3;
  s.kind = Kind::kBroadcast;
  s.dtype = DType::kFloat32;
  s.wire_dtype = DType::kBfloat16;
  s.op = ReduceOp::kMax;
  s.prescale = 0.25;
  s.root = 5;
  s.gradient = true;
  s.shapes = {{7, 0, int64_t{1} << 40}};
  const auto signature = std::make_shared<const Signature>(s);
  Frame frame;
  frame.type = FrameType::kResponses;
  frame.generation = 0x123456789abcdef;
  Response failed;
  failed.sequence = 42;
  failed.process_set = 3;
  failed.only = {1, 5};
  failed.status = Status::FailedPrecondition("no");
  failed.tensors = {{0, false, signature}, {0, false, signature}};
  frame.responses.push_back(failed);
  Response runs;
  runs.sequence = 43;
  runs.tensors = {{7, true, signature}, {8, false, nullptr}, {0, false, signature}};
  runs.sizes = {{1, 2}, {}, {}};
  frame.responses.push_back(runs);
  Response part;
  part.sequence = 44;
  part.tensors = {{8, false, nullptr}};
  part.sizes = {{}};
  part.part_begin = 1 << 20;
  part.part_count = 0;
  frame.responses.push_back(part);
  Response evicts;
  evicts.sequence = 45;
  evicts.evicted = {4, 9};
  frame.responses.push_back(evicts);
  return frame;
}

TEST(Message, ResponsesSurviveTheRoundTrip) {
  Frame got;
  ASSERT_TRUE(Decode(Encode(Sample()), &got));
  EXPECT_EQ(got.generation, 0x123456789abcdefu);
  ASSERT_EQ(got.responses.size(), 4u);
  const Response& failed = got.responses[0];
  EXPECT_EQ(failed.sequence, 42u);
  EXPECT_EQ(failed.process_set, 3);
  EXPECT_EQ(failed.only, std::vector<int>({1, 5}));
  EXPECT_EQ(failed.status.code(), Code::kFailedPrecondition);
  EXPECT_EQ(failed.status.message(), "no");
  EXPECT_LT(failed.part_count, 0);
  const Signature& s = *failed.tensors[1].signature;
  EXPECT_EQ(s.name, "dense/kernel");
  EXPECT_EQ(s.process_set, 3);
  EXPECT_EQ(s.kind, Kind::kBroadcast);
  EXPECT_EQ(s.dtype, DType::kFloat32);
  EXPECT_EQ(s.wire_dtype, DType::kBfloat16);
  EXPECT_EQ(s.op, ReduceOp::kMax);
  EXPECT_EQ(s.prescale, 0.25);
  EXPECT_EQ(s.root, 5);
  EXPECT_TRUE(s.gradient);
  EXPECT_EQ(s.shapes, std::vector<std::vector<int64_t>>({{7, 0, int64_t{1} << 40}}));

  const Response& runs = got.responses[1];
  EXPECT_TRUE(runs.only.empty());
  EXPECT_TRUE(runs.status.ok());
  ASSERT_EQ(runs.tensors.size(), 3u);
  EXPECT_EQ(runs.tensors[0].id, 7u);
  EXPECT_TRUE(runs.tensors[0].cache);
  EXPECT_NE(runs.tensors[0].signature, nullptr);
  EXPECT_EQ(runs.tensors[1].id, 8u);
  EXPECT_FALSE(runs.tensors[1].cache);
  EXPECT_EQ(runs.tensors[1].signature, nullptr);
  EXPECT_EQ(runs.tensors[2].id, 0u);
  EXPECT_FALSE(runs.tensors[2].cache);
  EXPECT_EQ(runs.sizes, std::vector<std::vector<int64_t>>({{1, 2}, {}, {}}));
  EXPECT_EQ(got.responses[2].part_begin, 1 << 20);
  EXPECT_EQ(got.responses[2].part_count, 0);
  EXPECT_EQ(got.responses[3].evicted, std::vector<CacheId>({4, 9}));
}

TEST(Message, GroupsSplitsAndAbsentRanksSurviveBeyond2To32) {
  constexpr int64_t kGiant = int64_t{5} << 40;
  Signature s;
  s.name = "g";
  s.kind = Kind::kAlltoall;
  s.grouped = true;
  s.others = 3;
  s.shapes = {{}, {kGiant, 0}, {3}};
  s.splits = {kGiant, 0, 3};
  s.ranks = {0, 7};
  Frame frame;
  frame.type = FrameType::kResponses;
  Response runs;
  runs.tensors = {{0, false, std::make_shared<const Signature>(s)}};
  runs.sizes = {{kGiant, 0, kGiant + 1}};
  runs.absent = {1, 4};
  runs.divisor = 3;
  runs.part_begin = kGiant;
  runs.part_count = kGiant + 2;
  frame.responses = {runs};
  Frame got;
  ASSERT_TRUE(Decode(Encode(frame), &got));
  const Response& response = got.responses.at(0);
  EXPECT_TRUE(response.first().grouped);
  EXPECT_EQ(response.first().others, 3);
  EXPECT_EQ(response.first().shapes, s.shapes);
  EXPECT_EQ(response.first().splits, s.splits);
  EXPECT_EQ(response.first().ranks, s.ranks);
  EXPECT_EQ(response.sizes, runs.sizes);
  EXPECT_EQ(response.absent, runs.absent);
  EXPECT_EQ(response.divisor, 3);
  EXPECT_EQ(response.part_begin, kGiant);
  EXPECT_EQ(response.part_count, kGiant + 2);

  frame.type = FrameType::kReports;
  frame.reports.push_back({Report::What::kSubtreeReady, 0, {{1, {kGiant, 0}}}, {}});
  ASSERT_TRUE(Decode(Encode(frame), &got));
  EXPECT_EQ(got.reports.at(0).ready.at(0).sizes, (std::vector<int64_t>{kGiant, 0}));
}

std::vector<CacheId> IdsOf(const std::vector<CachedReady>& ready) {
  std::vector<CacheId> ids;
  for (const CachedReady& r : ready) ids.push_back(r.id);
  return ids;
}

TEST(Message, ReportsSurviveTheRoundTrip) {
  Frame frame;
  frame.type = FrameType::kReports;
  std::vector<CachedReady> dense, sparse = {{5, {}}, {70000, {}}, {9, {3, -1}}};
  for (CacheId id = 100; id < 900; id += 3) dense.push_back({id, {}});
  frame.reports.push_back({Report::What::kSubtreeReady, 2, dense, {}});
  frame.reports.push_back({Report::What::kRankReady, 3, sparse, {}});
  frame.reports.push_back({Report::What::kRankReady, 4, {}, {}});
  frame.reports.push_back(
      {Report::What::kAnnouncement, 1, {}, {Announcement::What::kRefused, {}, "why"}});
  const std::string bytes = Encode(frame);
  Frame got;
  ASSERT_TRUE(Decode(bytes, &got));
  ASSERT_EQ(got.reports.size(), 4u);
  EXPECT_EQ(got.reports[0].rank, 2);
  EXPECT_EQ(IdsOf(got.reports[0].ready), IdsOf(dense));
  EXPECT_EQ(got.reports[1].what, Report::What::kRankReady);
  EXPECT_EQ(IdsOf(got.reports[1].ready), (std::vector<CacheId>{5, 70000, 9}));
  EXPECT_EQ(got.reports[1].ready[2].sizes, (std::vector<int64_t>{3, -1}));
  EXPECT_TRUE(got.reports[2].ready.empty());
  EXPECT_EQ(got.reports[3].announcement.what, Announcement::What::kRefused);
  EXPECT_EQ(got.reports[3].announcement.reason, "why");
  // 267 ids in 800: a bit each, not four bytes.
  EXPECT_LT(bytes.size(), 350u);
}

TEST(Message, TheOthersSurviveToo) {
  Frame got;
  Frame frame;
  frame.type = FrameType::kAbort;
  frame.status = Status::PeerLost("rank 1");
  ASSERT_TRUE(Decode(Encode(frame), &got));
  EXPECT_EQ(got.status.code(), Code::kPeerLost);
  EXPECT_EQ(got.status.message(), "rank 1");
  for (FrameType type : {FrameType::kGoodbye, FrameType::kFarewell, FrameType::kCutOff,
                         FrameType::kHeartbeat, FrameType::kAlive, FrameType::kOver}) {
    frame = {};
    frame.type = type;
    frame.rank = type >= FrameType::kHeartbeat ? 0 : 12;
    ASSERT_TRUE(Decode(Encode(frame), &got));
    EXPECT_EQ(got.type, type);
    EXPECT_EQ(got.rank, frame.rank);
  }
}

TEST(Message, ASetOfIdsIsBoundedBeforeItIsUnpacked) {
  // A frame of 1 MiB whose bits would be eight million ids.
  Frame frame;
  frame.type = FrameType::kReports;
  frame.reports.push_back({Report::What::kSubtreeReady, 0, {{1, {}}, {2, {}}, {3, {}}}, {}});
  std::string bytes = Encode(frame);
  const std::string bits("\x01\x01\x00\x00\x00\x01\x00\x00\x00\x07", 10);
  const size_t at = bytes.find(bits);
  ASSERT_NE(at, std::string::npos);
  const uint32_t many = 1 << 20;
  std::string large(bits, 0, 5);
  large.append(reinterpret_cast<const char*>(&many), sizeof(many));
  large.append(many, '\xff');
  bytes.replace(at, bits.size(), large);
  Frame got;
  EXPECT_FALSE(Decode(bytes, &got));
}

TEST(Message, CutAndLengthenedFramesAreRefused) {
  const std::string whole = Encode(Sample());
  Frame frame;
  for (size_t n = 0; n < whole.size(); ++n) EXPECT_FALSE(Decode(whole.substr(0, n), &frame)) << n;
  EXPECT_FALSE(Decode(whole + "x", &frame));
}

TEST(Message, AResponseThatContradictsItselfIsRefused) {
  Frame got;
  Frame frame = Sample();
  frame.responses[1].sizes.clear();  // three tensors, no list of sizes
  EXPECT_FALSE(Decode(Encode(frame), &got));
  frame = Sample();
  frame.responses[1].tensors.clear();
  frame.responses[1].sizes.clear();
  EXPECT_FALSE(Decode(Encode(frame), &got));
  frame = Sample();
  frame.responses[2].part_begin = -1;
  EXPECT_FALSE(Decode(Encode(frame), &got));
}

TEST(Message, RandomBytesNeverHarm) {
  // Sanitizers watch; a decoder that believed a length would also run out of memory.
  std::mt19937 random(1);
  const std::string whole = Encode(Sample());
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = whole;
    for (int flips = 1 + random() % 8; flips > 0; --flips) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    Frame frame;
    Decode(bytes, &frame);
  }
}

}  // namespace
}  // namespace hvd
