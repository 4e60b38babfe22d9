#include "tf_ops/fusion/plan.h"

#include <gtest/gtest.h>

namespace hvd {
namespace {

using Buckets = std::vector<std::vector<size_t>>;

Signature Tensor(int64_t floats, ReduceOp op = ReduceOp::kSum, int set = 0) {
  Signature s;
  s.name = "x";
  s.kind = Kind::kAllreduce;
  s.dtype = DType::kFloat32;
  s.op = op;
  s.process_set = set;
  s.shapes = {{floats}};
  return s;
}

Buckets Plan(const std::vector<Signature>& tensors, int64_t threshold_bytes,
             bool fuse_groups = true) {
  std::vector<const Signature*> pointers;
  for (const Signature& s : tensors) pointers.push_back(&s);
  return PlanBuckets(pointers, threshold_bytes, fuse_groups);
}

TEST(Plan, NothingReady) { EXPECT_EQ(Plan({}, 100), Buckets()); }

TEST(Plan, FillsUpToTheThreshold) {
  EXPECT_EQ(Plan({Tensor(10), Tensor(10), Tensor(5), Tensor(1)}, 80), Buckets({{0, 1}, {2, 3}}));
}

TEST(Plan, AThresholdOfZeroFusesNothing) {
  EXPECT_EQ(Plan({Tensor(1), Tensor(0), Tensor(1)}, 0), Buckets({{0}, {1}, {2}}));
}

TEST(Plan, ALargeTensorTravelsAloneAndDoesNotCloseTheBucket) {
  EXPECT_EQ(Plan({Tensor(1), Tensor(1000), Tensor(1)}, 100), Buckets({{0, 2}, {1}}));
}

TEST(Plan, WhatDiffersTravelsApart) {
  Signature scaled = Tensor(1);
  scaled.prescale = 2;
  Signature other_type = Tensor(1);
  other_type.dtype = DType::kInt32;
  Signature narrower = Tensor(1);
  narrower.wire_dtype = DType::kFloat16;
  EXPECT_EQ(Plan({Tensor(1), Tensor(1, ReduceOp::kMax), Tensor(1, ReduceOp::kSum, 1), scaled,
                  other_type, narrower, Tensor(1)},
                 100),
            Buckets({{0, 6}, {1}, {2}, {3}, {4}, {5}}));
}

TEST(Plan, WhatIsCastIsCountedAsItTravels) {
  Signature narrower = Tensor(20);  // 80 bytes, of which 40 travel
  narrower.wire_dtype = DType::kBfloat16;
  EXPECT_EQ(Plan({narrower, narrower, narrower}, 80), Buckets({{0, 1}, {2}}));
}

TEST(Plan, OnlyFusableCollectivesFuse) {
  Signature gather = Tensor(1);
  gather.kind = Kind::kAllgather;
  EXPECT_EQ(Plan({gather, gather}, 100), Buckets({{0}, {1}}));
}

TEST(Plan, AGroupIsFusedWhole) {
  Signature group = Tensor(3);
  group.grouped = true;
  group.shapes = {{3}, {}, {0}, {6}};  // 40 bytes
  EXPECT_EQ(Plan({group, Tensor(5), group}, 80), Buckets({{0, 1}, {2}}));
  EXPECT_EQ(Plan({Tensor(5), group, Tensor(5)}, 80, false), Buckets({{0, 2}, {1}}));
  group.shapes.push_back({11});
  EXPECT_EQ(Plan({Tensor(5), group, Tensor(5)}, 80), Buckets({{0, 2}, {1}}));
}

TEST(Plan, BytesAreCountedBeyond2To32) {
  EXPECT_EQ(Plan({Tensor(int64_t{1} << 33), Tensor(int64_t{1} << 33), Tensor(1)}, int64_t{1} << 36),
            Buckets({{0, 1}, {2}}));
  Signature s = Tensor(int64_t{1} << 40);
  EXPECT_EQ(PartCount(s, int64_t{1} << 38), int64_t{1} << 36);
  EXPECT_EQ(PartCount(s, int64_t{1} << 42), int64_t{1} << 40);  // fits
}

TEST(Plan, PartsAreLargeAndAligned) {
  Signature s;
  s.kind = Kind::kAllreduce;
  s.dtype = DType::kFloat64;
  s.shapes = {{1'000'000}};
  EXPECT_EQ(PartCount(s, 8'000'000), 1'000'000);  // fits
  EXPECT_EQ(PartCount(s, 0), 1'000'000);          // each alone and whole
  EXPECT_EQ(PartCount(s, 1 << 20), (1 << 20) / 8);
  EXPECT_EQ(PartCount(s, 1'000'000), 1'000'000 / 8 / 64 * 64);
  EXPECT_EQ(PartCount(s, 1), kLeastPartBytes / 8);
  s.shapes = {{kLeastPartBytes / 8}};
  EXPECT_EQ(PartCount(s, 1), kLeastPartBytes / 8);
  s.kind = Kind::kAllgather;
  s.shapes = {{1'000'000}};
  EXPECT_EQ(PartCount(s, 1), 1'000'000);
}

}  // namespace
}  // namespace hvd
