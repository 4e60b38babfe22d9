// The protocol of shared memory among threads that use one mapping of each segment, so that
// ThreadSanitizer sees both sides of every word and every byte.  Between processes, or between
// mappings, it cannot.

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "tf_ops/transport/shm/position.h"
#include "tf_ops/transport/shm/segment.h"
#include "tf_ops/transport/shm/shm_transport.h"

namespace hvd {
namespace {

constexpr uint64_t kGeneration = 5;

class ShmMemoryTest : public testing::TestWithParam<int> {
 protected:
  ShmMemoryTest() : layout_(ShmLayout::Of(size(), 4096)) {
    for (int r = 0; r < size(); ++r) {
      Fd fd;
      std::unique_ptr<ShmSegment> segment;
      EXPECT_EQ(ShmSegment::Make(layout_, kGeneration, r, MakeMemfd, &table_, &fd, &segment), "");
      segments_.push_back(std::move(segment));
      names_.push_back("rank " + std::to_string(r));
    }
    for (int r = 0; r < size(); ++r) {
      ranks_.push_back(
          std::make_unique<ShmRank>(segments_, names_, r, kGeneration, Clock::duration{}, &stop_));
    }
  }
  static int size() { return GetParam(); }

  // Runs `body` as every rank, each in a thread.  One that gives up ends the others, too: they
  // would wait for it for ever.
  void RunRanks(const std::function<void(int rank)>& body) {
    std::vector<std::thread> threads;
    for (int r = 0; r < size(); ++r) {
      threads.emplace_back([&, r] {
        body(r);
        if (!HasFatalFailure()) return;
        stop_.Set(Status::PeerLost("another rank gave up"));
        for (const auto& rank : ranks_) rank->Abort();
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  FdTable table_;
  Stop stop_{&table_};
  const ShmLayout layout_;
  std::vector<std::shared_ptr<ShmSegment>> segments_;
  std::vector<std::string> names_;
  std::vector<std::unique_ptr<ShmRank>> ranks_;
};

// Calls of few and of many blocks, and messages, in turns; every element is looked at.
TEST_P(ShmMemoryTest, CallsAndMessagesOneAfterAnother) {
  RunRanks([&](int r) {
    ShmMessages messages(ranks_[r].get());
    HostRanks all(size());
    std::iota(all.begin(), all.end(), 0);
    ShmTransport transport(ranks_[r].get(), &messages, all);
    for (uint64_t sequence = 1; sequence <= 200; ++sequence) {
      const int64_t count = sequence % 5 == 0 ? 20000 : 1 + sequence % 7 * 300;
      std::vector<int32_t> in(count, static_cast<int32_t>(sequence * (r + 1)));
      std::vector<int32_t> out(count, -1);
      CollectiveCall call;
      call.sequence = sequence;
      call.kind = Kind::kAllreduce;
      call.dtype = DType::kInt32;
      call.segments.push_back({reinterpret_cast<const std::byte*>(in.data()),
                               reinterpret_cast<std::byte*>(out.data()), count});
      Status status;
      transport.Launch(call, [&](Status outcome) { status = std::move(outcome); });
      ASSERT_TRUE(status.ok()) << status;
      const auto sum = static_cast<int32_t>(sequence) * size() * (size() + 1) / 2;
      ASSERT_EQ(out, std::vector<int32_t>(count, sum));
      if (size() == 1 || sequence % 3 != 0) continue;
      const int to = (r + 1) % size();
      const int from = (r + size() - 1) % size();
      status = transport.SendRecv({to, ConstBytes(in.data(), count * 4), from,
                                   Bytes(out.data(), count * 4), Deadline::Never()});
      ASSERT_TRUE(status.ok()) << status;
      ASSERT_EQ(out, std::vector<int32_t>(count, static_cast<int32_t>(sequence * (from + 1))));
    }
  });
}

TEST_P(ShmMemoryTest, ASlotOfAnotherTimeIsFoundOut) {
  segments_[size() - 1]->tag(1) = {kGeneration - 1, PositionOf(7, 1)};
  const Status status = ranks_[0]->CheckTag(size() - 1, 1, PositionOf(8, 1));
  EXPECT_EQ(status.code(), Code::kInternal);
  for (const std::string& value :
       {std::to_string(PositionOf(7, 1)), std::to_string(PositionOf(8, 1)),
        "generation " + std::to_string(kGeneration - 1)}) {
    EXPECT_NE(status.message().find(value), std::string::npos) << status;
  }
}

TEST_P(ShmMemoryTest, ACallThatIsNotLaterIsRefused) {
  EXPECT_TRUE(ranks_[0]->BeginCall(0).ok());
  EXPECT_TRUE(ranks_[0]->BeginCall(5).ok());
  EXPECT_EQ(ranks_[0]->BeginCall(5).code(), Code::kInternal);
  EXPECT_EQ(ranks_[0]->BeginCall(kMostSequence + 1).code(), Code::kInternal);
}

// A segment count that cannot be counted in the 24 bits of a position.
TEST_P(ShmMemoryTest, ACallOfTooManyBlocksIsRefused) {
  ShmMessages messages(ranks_[0].get());
  ShmTransport transport(ranks_[0].get(), &messages, {0});
  CollectiveCall call;
  call.kind = Kind::kAllreduce;
  call.dtype = DType::kUint8;
  const auto most = static_cast<int64_t>(kMostBlocks * layout_.slot_bytes);
  call.segments.push_back({nullptr, nullptr, most + 1});  // nothing is read
  Status status;
  transport.Launch(call, [&](Status outcome) { status = std::move(outcome); });
  EXPECT_EQ(status.code(), Code::kInvalidArgument) << status;
  EXPECT_NE(status.message().find("HOROVOD_STAGING_BYTES"), std::string::npos) << status;
}

INSTANTIATE_TEST_SUITE_P(Sizes, ShmMemoryTest, testing::Values(1, 2, 3, 5));

TEST(ShmLayoutTest, SlotsFitInTheStagingMemory) {
  for (size_t staging_bytes : {4096, 5000, 100000, 1 << 19, (1 << 19) + 1, 4 << 20, 1 << 30}) {
    const ShmLayout layout = ShmLayout::Of(3, staging_bytes);
    EXPECT_GE(layout.slots, 2u);
    EXPECT_LE(layout.slots * layout.slot_bytes, staging_bytes);
    EXPECT_EQ(layout.slot_bytes % kCacheLine, 0u);
  }
}

TEST(ShmSegmentTest, ASegmentOfAnotherGenerationRankOrSizeIsNotMapped) {
  FdTable table;
  const ShmLayout layout = ShmLayout::Of(2, 4096);
  Fd fd;
  std::unique_ptr<ShmSegment> made, mapped;
  ASSERT_EQ(ShmSegment::Make(layout, 3, 1, MakeMemfd, &table, &fd, &made), "");
  EXPECT_EQ(ShmSegment::Map(layout, 3, 1, fd, &mapped), "");
  EXPECT_NE(ShmSegment::Map(layout, 4, 1, fd, &mapped), "");
  EXPECT_NE(ShmSegment::Map(layout, 3, 0, fd, &mapped), "");
  EXPECT_NE(ShmSegment::Map(ShmLayout::Of(2, 8192), 3, 1, fd, &mapped), "");
}

}  // namespace
}  // namespace hvd
