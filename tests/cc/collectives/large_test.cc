// More than 4 GiB in one tensor: which bytes an algorithm would send and receive.
//
// The tensors are addresses without memory, and the transport moves nothing, so whatever
// touched one would crash.

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <string>

#include "tf_ops/collectives/collective.h"

namespace hvd {
namespace {

constexpr int64_t kGiant = (int64_t{1} << 32) + 6;  // bytes, and elements

class Addresses {
 public:
  explicit Addresses(size_t bytes)
      : bytes_(bytes),
        begin_(
            mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
  ~Addresses() { munmap(begin_, bytes_); }
  bool valid() const { return begin_ != MAP_FAILED; }
  std::byte* begin() const { return static_cast<std::byte*>(begin_); }

 private:
  const size_t bytes_;
  void* const begin_;
};

// Rank 1 of 2.
class Pretended final : public Transport {
 public:
  int rank() const override { return 1; }
  int size() const override { return 2; }
  uint64_t moved() const override { return 0; }
  Status SendRecv(const SendRecvArgs& args) override {
    ++calls;
    if (args.to >= 0) {
      if (out == nullptr) out = static_cast<const std::byte*>(args.out.data);
      end_of_out = static_cast<const std::byte*>(args.out.data) + args.out.size;
      sent += args.out.size;
    }
    if (args.from >= 0) {
      if (in == nullptr) in = static_cast<const std::byte*>(args.in.data);
      received += args.in.size;
    }
    return Status::Ok();
  }

  int calls = 0;
  size_t sent = 0, received = 0;                          // bytes
  const std::byte *out = nullptr, *end_of_out = nullptr;  // the first and the last byte sent
  const std::byte* in = nullptr;                          // where the first received one goes
};

class LargeTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!in_.valid() || !out_.valid()) GTEST_SKIP() << "no 32 GiB of addresses";
  }

  // Runs rank 1 of 2.
  void Run(Kind kind, std::vector<int64_t> shape, std::vector<int64_t> sizes) {
    Signature s;
    s.name = "x";
    s.kind = kind;
    s.dtype = DType::kUint8;
    s.shapes = {std::move(shape)};
    const Collective& collective = *FindCollective(kind);
    CollectiveCall call;
    call.kind = kind;
    call.dtype = s.dtype;
    call.segments = {{in_.begin(), out_.begin(), s.count(0)}};
    if (collective.divide != nullptr) collective.divide(s, 0, {1, 2, sizes}, &call);
    const Status status = collective.run(transport_, call, {scratch_.data(), scratch_.size()});
    EXPECT_TRUE(status.ok()) << status;
  }

  const Addresses in_{size_t{16} << 30};
  const Addresses out_{size_t{16} << 30};
  std::vector<std::byte> scratch_ = std::vector<std::byte>(4 << 20);
  Pretended transport_;
};

TEST_F(LargeTest, AnAllgatherReceivesRowsOfMoreThan4GiB) {
  Run(Kind::kAllgather, {0, 2}, {kGiant, 0});
  EXPECT_EQ(transport_.received, static_cast<size_t>(2 * kGiant));
  EXPECT_EQ(transport_.in, out_.begin());
}

TEST_F(LargeTest, AnAlltoallSendsFromAndReceivesToBeyond4GiB) {
  // Nothing for itself: that would be copied.
  Run(Kind::kAlltoall, {3, kGiant}, {0, 2, 3, 0});
  EXPECT_EQ(transport_.sent, static_cast<size_t>(3 * kGiant));
  EXPECT_EQ(transport_.out, in_.begin());
  EXPECT_EQ(transport_.received, static_cast<size_t>(2 * kGiant));
  EXPECT_EQ(transport_.in, out_.begin());
}

TEST_F(LargeTest, ABroadcastReceivesAndSendsAllOfIt) {
  Run(Kind::kBroadcast, {kGiant}, {});
  EXPECT_EQ(transport_.received, static_cast<size_t>(kGiant));
  EXPECT_EQ(transport_.in, out_.begin());
}

TEST_F(LargeTest, AReducescatterSendsItInBlocks) {
  // One row, which is rank 0's: this rank reduces nothing.
  Run(Kind::kReducescatter, {1, kGiant}, {});
  EXPECT_EQ(transport_.sent, static_cast<size_t>(kGiant));
  EXPECT_EQ(transport_.out, in_.begin());
  EXPECT_EQ(transport_.end_of_out, in_.begin() + kGiant);
  EXPECT_EQ(transport_.received, 0u);
  EXPECT_EQ(transport_.calls, (kGiant + (2 << 20) - 1) / (2 << 20));
}

}  // namespace
}  // namespace hvd
