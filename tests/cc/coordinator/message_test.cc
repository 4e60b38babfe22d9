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
  s.dtype = DType::kBfloat16;
  s.op = ReduceOp::kMax;
  s.prescale = 0.25;
  s.root = 5;
  s.gradient = true;
  s.shape = {7, 0, int64_t{1} << 40};
  Frame frame;
  frame.type = FrameType::kResponses;
  frame.generation = 0x123456789abcdef;
  frame.responses.push_back({42, Status::FailedPrecondition("no"), {s, s}, {{1, 2}, {}}});
  frame.responses.push_back({43, {}, {s}, {{}}});
  return frame;
}

TEST(Message, ResponsesSurviveTheRoundTrip) {
  Frame got;
  ASSERT_TRUE(Decode(Encode(Sample()), &got));
  EXPECT_EQ(got.generation, 0x123456789abcdefu);
  ASSERT_EQ(got.responses.size(), 2u);
  EXPECT_EQ(got.responses[0].sequence, 42u);
  EXPECT_EQ(got.responses[0].status.code(), Code::kFailedPrecondition);
  EXPECT_EQ(got.responses[0].status.message(), "no");
  EXPECT_EQ(got.responses[0].rows, std::vector<std::vector<int64_t>>({{1, 2}, {}}));
  const Signature& s = got.responses[0].tensors[1];
  EXPECT_EQ(s.name, "dense/kernel");
  EXPECT_EQ(s.process_set, 3);
  EXPECT_EQ(s.kind, Kind::kBroadcast);
  EXPECT_EQ(s.dtype, DType::kBfloat16);
  EXPECT_EQ(s.op, ReduceOp::kMax);
  EXPECT_EQ(s.prescale, 0.25);
  EXPECT_EQ(s.root, 5);
  EXPECT_TRUE(s.gradient);
  EXPECT_EQ(s.shape, std::vector<int64_t>({7, 0, int64_t{1} << 40}));
}

TEST(Message, TheOthersSurviveToo) {
  Frame frame;
  frame.type = FrameType::kAnnouncements;
  frame.announcements.push_back({Announcement::What::kRefused, {}, "why"});
  Frame got;
  ASSERT_TRUE(Decode(Encode(frame), &got));
  ASSERT_EQ(got.announcements.size(), 1u);
  EXPECT_EQ(got.announcements[0].what, Announcement::What::kRefused);
  EXPECT_EQ(got.announcements[0].reason, "why");

  frame = {};
  frame.type = FrameType::kAbort;
  frame.status = Status::PeerLost("rank 1");
  ASSERT_TRUE(Decode(Encode(frame), &got));
  EXPECT_EQ(got.status.code(), Code::kPeerLost);
  for (FrameType type : {FrameType::kGoodbye, FrameType::kFarewell, FrameType::kCoordinatorLeft,
                         FrameType::kHeartbeat}) {
    frame = {};
    frame.type = type;
    ASSERT_TRUE(Decode(Encode(frame), &got));
    EXPECT_EQ(got.type, type);
  }
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
  frame.responses[1].rows.clear();  // one tensor, no list of rows
  EXPECT_FALSE(Decode(Encode(frame), &got));
  frame = Sample();
  frame.responses[1].tensors.clear();
  frame.responses[1].rows.clear();
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
