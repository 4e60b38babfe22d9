#include "tf_ops/transport/subset.h"

#include <gtest/gtest.h>

namespace hvd {
namespace {

// Rank 4 of 7; remembers the last call.
class Whole final : public Transport {
 public:
  int rank() const override { return 4; }
  int size() const override { return 7; }
  uint64_t moved() const override { return 0; }
  Status SendRecv(const SendRecvArgs& args) override {
    last = args;
    return Status::PeerLost("rank 6 is lost");
  }
  bool IsNative(Kind) const override { return true; }

  SendRecvArgs last;
};

TEST(Subset, HasItsOwnRanksOverThoseOfTheWhole) {
  Whole whole;
  SubsetTransport subset(&whole, {1, 4, 6});
  EXPECT_EQ(subset.rank(), 1);
  EXPECT_EQ(subset.size(), 3);
  const std::byte out[3] = {};
  std::byte in[5];
  const Deadline deadline = Deadline::After(std::chrono::seconds(1));
  const Status status =
      subset.SendRecv({2, ConstBytes(out, sizeof(out)), 0, Bytes(in, sizeof(in)), deadline});
  EXPECT_EQ(status.code(), Code::kPeerLost);
  EXPECT_EQ(whole.last.to, 6);
  EXPECT_EQ(whole.last.from, 1);
  EXPECT_EQ(static_cast<const void*>(whole.last.out.data), out);
  EXPECT_EQ(whole.last.out.size, sizeof(out));
  EXPECT_EQ(static_cast<const void*>(whole.last.in.data), in);
  EXPECT_EQ(whole.last.in.size, sizeof(in));
}

TEST(Subset, ASideThatTakesNoPartStaysSo) {
  Whole whole;
  SubsetTransport subset(&whole, {4, 5});
  EXPECT_EQ(subset.rank(), 0);
  (void)subset.SendRecv({-1, {}, 1, {}, {}});
  EXPECT_EQ(whole.last.to, -1);
  EXPECT_EQ(whole.last.from, 5);
}

// A native call counts on all ranks of the whole.
TEST(Subset, IsNotNative) {
  Whole whole;
  EXPECT_FALSE(SubsetTransport(&whole, {4}).IsNative(Kind::kAllreduce));
}

}  // namespace
}  // namespace hvd
