#include "tf_ops/device/reduce.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "tf_ops/device/half.h"
#include "tf_ops/device/reduce_kernels.h"

namespace hvd {
namespace {

template <typename T>
std::vector<T> Reduce(DType dtype, const Reduction& reduction,
                      const std::vector<std::vector<T>>& ranks) {
  std::vector<const void*> contributions;
  for (const auto& rank : ranks) contributions.push_back(rank.data());
  std::vector<T> out(ranks[0].size());
  ReduceInOrder(dtype, reduction, contributions.data(), static_cast<int>(ranks.size()), out.data(),
                static_cast<int64_t>(out.size()));
  return out;
}

Reduction Of(ReduceOp op, double prescale = 1, double postscale = 1, int divisor = 1) {
  return {op, prescale, postscale, divisor};
}

TEST(Reduce, EveryOpOnFloats) {
  const std::vector<std::vector<float>> ranks = {{1, -2, 3}, {4, 5, -6}, {0.5, 0.5, 2}};
  EXPECT_EQ(Reduce(DType::kFloat32, Of(ReduceOp::kSum), ranks), std::vector<float>({5.5, 3.5, -1}));
  EXPECT_EQ(Reduce(DType::kFloat32, Of(ReduceOp::kMin), ranks), std::vector<float>({0.5, -2, -6}));
  EXPECT_EQ(Reduce(DType::kFloat32, Of(ReduceOp::kMax), ranks), std::vector<float>({4, 5, 3}));
  EXPECT_EQ(Reduce(DType::kFloat32, Of(ReduceOp::kProduct), ranks),
            std::vector<float>({2, -5, -36}));
  EXPECT_EQ(Reduce(DType::kFloat32, Of(ReduceOp::kAverage, 1, 1, 2), ranks),
            std::vector<float>({2.75, 1.75, -0.5}));
  EXPECT_EQ(Reduce(DType::kFloat32, Of(ReduceOp::kSum, 2, 10), ranks),
            std::vector<float>({110, 70, -20}));
}

TEST(Reduce, AverageDividesExactly) {
  // A factor of 1/3 would give 0.99999994 or 1.0000001 for some of these.
  for (float x : {1.0f, 3.0f, 7.0f, 49.0f, 1e20f}) {
    EXPECT_EQ(Reduce<float>(DType::kFloat32, Of(ReduceOp::kAverage, 1, 1, 3), {{x}, {x}, {x}})[0],
              (x + x + x) / 3);
  }
}

TEST(Reduce, NanOnAnyRankStays) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct}) {
    EXPECT_TRUE(std::isnan(Reduce<float>(DType::kFloat32, Of(op), {{nan}, {1}})[0])) << Name(op);
    EXPECT_TRUE(std::isnan(Reduce<float>(DType::kFloat32, Of(op), {{1}, {nan}})[0])) << Name(op);
  }
}

TEST(Reduce, SixteenBitFloatsRoundOnce) {
  // 2048 + 1 + 1: rounding after each addition would lose both ones.
  const auto f16 = [](float x) { return Float16::FromFloat(x).bits; };
  const auto bf16 = [](float x) { return Bfloat16::FromFloat(x).bits; };
  EXPECT_EQ(
      Reduce<uint16_t>(DType::kFloat16, Of(ReduceOp::kSum), {{f16(2048)}, {f16(1)}, {f16(1)}})[0],
      f16(2050));
  EXPECT_EQ(Reduce<uint16_t>(DType::kBfloat16, Of(ReduceOp::kSum),
                             {{bf16(256)}, {bf16(1)}, {bf16(1)}})[0],
            bf16(258));
}

TEST(Reduce, IntegersWrapAndDivideTowardZero) {
  EXPECT_EQ(Reduce<int8_t>(DType::kInt8, Of(ReduceOp::kSum), {{127}, {1}})[0], -128);
  EXPECT_EQ(Reduce<uint8_t>(DType::kUint8, Of(ReduceOp::kSum), {{255}, {2}})[0], 1);
  EXPECT_EQ(Reduce<uint16_t>(DType::kUint16, Of(ReduceOp::kProduct), {{65535}, {65535}})[0], 1);
  EXPECT_EQ(Reduce<int64_t>(DType::kInt64, Of(ReduceOp::kSum),
                            {{std::numeric_limits<int64_t>::max()}, {1}})[0],
            std::numeric_limits<int64_t>::min());
  EXPECT_EQ(Reduce<int32_t>(DType::kInt32, Of(ReduceOp::kAverage, 1, 1, 2), {{-3}, {-4}})[0], -3);
  // Exact beyond what a double holds, as long as there are no factors.
  const int64_t big = (int64_t{1} << 53) + 1;
  EXPECT_EQ(Reduce<int64_t>(DType::kInt64, Of(ReduceOp::kSum), {{big}, {0}})[0], big);
}

TEST(Reduce, MoreRanksThanASmallTypeCounts) {
  for (int n : {128, 256, 300}) {
    const std::vector<std::vector<int8_t>> ranks(n, {0, n == 128 ? int8_t{1} : int8_t{0}});
    // 128 times 1 wraps to -128.
    EXPECT_EQ(Reduce(DType::kInt8, Of(ReduceOp::kAverage, 1, 1, n), ranks),
              std::vector<int8_t>({0, n == 128 ? int8_t{-1} : int8_t{0}}));
  }
  EXPECT_EQ(Reduce<uint8_t>(DType::kUint8, Of(ReduceOp::kAverage, 1, 1, 256), {{255}})[0], 0);
}

TEST(Reduce, IntegerFactorsComeOnceAtTheEnd) {
  // 3 * 0.5 + 3 * 0.5 with two roundings would be 2.
  EXPECT_EQ(Reduce<int32_t>(DType::kInt32, Of(ReduceOp::kSum, 0.5), {{3}, {3}})[0], 3);
  EXPECT_EQ(Reduce<int32_t>(DType::kInt32, Of(ReduceOp::kSum, 1, -0.5), {{3}, {2}})[0], -2);
  EXPECT_EQ(Reduce<int32_t>(DType::kInt32, Of(ReduceOp::kProduct, 2), {{3}, {5}})[0], 60);
  EXPECT_EQ(Reduce<int32_t>(DType::kInt32, Of(ReduceOp::kMin, -2), {{3}, {5}})[0], -10);
  EXPECT_EQ(Reduce<int32_t>(DType::kInt32, Of(ReduceOp::kMax, -2), {{3}, {5}})[0], -6);
  EXPECT_EQ(Reduce<uint8_t>(DType::kUint8, Of(ReduceOp::kSum, 1, 1e9), {{1}, {1}})[0], 255);
}

TEST(Reduce, BoolsAreOrAndAnd) {
  const std::vector<std::vector<uint8_t>> ranks = {{0, 0, 1, 1}, {0, 1, 0, 1}};
  for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
    EXPECT_EQ(Reduce(DType::kBool, Of(op), ranks), std::vector<uint8_t>({0, 1, 1, 1}));
  }
  for (ReduceOp op : {ReduceOp::kProduct, ReduceOp::kMin}) {
    EXPECT_EQ(Reduce(DType::kBool, Of(op), ranks), std::vector<uint8_t>({0, 0, 0, 1}));
  }
}

TEST(Reduce, TheOrderIsTheRanks) {
  // (1e8 + -1e8) + 1 is 1, but 1e8 + (-1e8 + 1) is 0.
  EXPECT_EQ(Reduce<float>(DType::kFloat32, Of(ReduceOp::kSum), {{1e8f}, {-1e8f}, {1}})[0], 1);
  EXPECT_EQ(Reduce<float>(DType::kFloat32, Of(ReduceOp::kSum), {{1}, {1e8f}, {-1e8f}})[0], 0);
}

TEST(Reduce, InPlaceAndLongerThanATile) {
  std::vector<double> a(5000), b(5000);
  for (int i = 0; i < 5000; ++i) {
    a[i] = i;
    b[i] = 2 * i;
  }
  const void* contributions[] = {a.data(), b.data()};
  ReduceInOrder(DType::kFloat64, Of(ReduceOp::kSum), contributions, 2, b.data(), 5000);
  for (int i = 0; i < 5000; ++i) ASSERT_EQ(b[i], 3 * i);
}

// Every dtype and reduction on random bits, infinities and NaN among them.
TEST(Reduce, EveryInstructionSetGivesTheSameBits) {
  constexpr int64_t kCount = 3001;  // more than a tile, and no multiple of a vector
  constexpr int kRanks = 3;
  std::mt19937_64 random(7);
  std::vector<std::vector<uint64_t>> bits(kRanks, std::vector<uint64_t>(kCount));
  for (auto& rank : bits) {
    for (uint64_t& x : rank) x = random();
  }
  std::vector<const void*> contributions;
  for (const auto& rank : bits) contributions.push_back(rank.data());
  int compared = 0;
  for (const ReduceKernels* kernels : KernelsBestFirst()) {
    if (kernels == &kReducePlain || !kernels->can_run()) continue;
    for (int dtype = 0; dtype < kNumDTypes; ++dtype) {
      for (int op = 0; op < kNumReduceOps; ++op) {
        if (static_cast<ReduceOp>(op) == ReduceOp::kAdasum) continue;
        for (double factor : {1.0, -0.3}) {
          const bool average = static_cast<ReduceOp>(op) == ReduceOp::kAverage;
          const Reduction reduction =
              Of(static_cast<ReduceOp>(op), factor, factor, average ? kRanks : 1);
          std::vector<uint64_t> want(kCount), got(kCount);
          const auto run = [&](const ReduceKernels& k, std::vector<uint64_t>* out) {
            k.run(static_cast<DType>(dtype), reduction, contributions.data(), kRanks, out->data(),
                  kCount);
          };
          run(kReducePlain, &want);
          run(*kernels, &got);
          ASSERT_EQ(got, want) << kernels->name << " " << Name(static_cast<DType>(dtype)) << " "
                               << Name(static_cast<ReduceOp>(op)) << " " << factor;
          ++compared;
        }
      }
    }
  }
#if defined(__x86_64__)
  EXPECT_EQ(kReduceAvx2.can_run(), __builtin_cpu_supports("avx2") != 0);
  EXPECT_EQ(kReduceAvx512.can_run(), __builtin_cpu_supports("avx512bw") != 0);
#endif
  if (compared == 0) GTEST_SKIP() << "this machine runs the plain kernels alone";
}

constexpr DType kHalves[] = {DType::kFloat16, DType::kBfloat16};
constexpr DType kWides[] = {DType::kFloat32, DType::kFloat64};

// Random bits of either width, infinities and NaN among them.
TEST(Cast, EveryInstructionSetGivesTheBitsOfOneElement) {
  constexpr int64_t kCount = 3001;
  std::mt19937_64 random(7);
  std::vector<uint64_t> in(kCount);
  for (uint64_t& x : in) x = random();
  for (const ReduceKernels* kernels : KernelsBestFirst()) {
    if (!kernels->can_run()) continue;
    for (DType half : kHalves) {
      for (DType wide : kWides) {
        std::vector<uint16_t> narrow(kCount);
        kernels->cast(wide, half, in.data(), narrow.data(), kCount);
        std::vector<uint64_t> widened(kCount);
        kernels->cast(half, wide, in.data(), widened.data(), kCount);
        for (int64_t i = 0; i < kCount; ++i) {
          float f;
          if (wide == DType::kFloat32) {
            std::memcpy(&f, reinterpret_cast<const float*>(in.data()) + i, sizeof(f));
          } else {
            double d;
            std::memcpy(&d, in.data() + i, sizeof(d));
            f = static_cast<float>(d);
          }
          const uint16_t bits = reinterpret_cast<const uint16_t*>(in.data())[i];
          const bool is_f16 = half == DType::kFloat16;
          ASSERT_EQ(narrow[i], is_f16 ? Float16::FromFloat(f).bits : Bfloat16::FromFloat(f).bits)
              << kernels->name << " " << Name(wide) << " to " << Name(half) << " " << f;
          const float wider = is_f16 ? Float16{bits}.ToFloat() : Bfloat16{bits}.ToFloat();
          if (wide == DType::kFloat32) {
            ASSERT_EQ(std::memcmp(reinterpret_cast<const float*>(widened.data()) + i, &wider,
                                  sizeof(wider)),
                      0);
          } else if (!std::isnan(wider)) {
            double d;
            std::memcpy(&d, widened.data() + i, sizeof(d));
            ASSERT_EQ(d, static_cast<double>(wider));
          }
        }
      }
    }
  }
}

TEST(Cast, OfEqualTypesIsACopy) {
  const std::vector<int64_t> in = {1, -2, 3};
  std::vector<int64_t> out(3);
  Cast(DType::kInt64, DType::kInt64, in.data(), out.data(), 3);
  EXPECT_EQ(out, in);
}

TEST(ReduceInOrderTo, IsTheReductionAndThenTheCast) {
  constexpr int kCount = 5001;  // several tiles and a rest
  std::vector<uint16_t> a(kCount), b(kCount), reduced(kCount);
  for (int i = 0; i < kCount; ++i) {
    a[i] = Float16::FromFloat(static_cast<float>(i) / 7).bits;
    b[i] = Float16::FromFloat(static_cast<float>(i) * 11).bits;
  }
  const void* const contributions[] = {a.data(), b.data()};
  const Reduction reduction = Of(ReduceOp::kAverage, 0.5, 3, 2);
  std::vector<double> got(kCount), want(kCount);
  ReduceInOrderTo(DType::kFloat64, DType::kFloat16, reduction, contributions, 2, got.data(),
                  kCount);
  ReduceInOrder(DType::kFloat16, reduction, contributions, 2, reduced.data(), kCount);
  Cast(DType::kFloat16, DType::kFloat64, reduced.data(), want.data(), kCount);
  EXPECT_EQ(got, want);
}

// Wherever the result lies, and however long it is.
TEST(ReduceInOrderTo, StreamedResultsAreTheSame) {
  for (const int64_t count : {0, 1, 3, 511, 512, 513, 4099}) {
    for (const int64_t offset : {0, 1, 2, 3}) {
      std::vector<float> a(count), b(count), got(count + offset + 1, -1), want(count);
      for (int64_t i = 0; i < count; ++i) a[i] = static_cast<float>(i) / 3, b[i] = 7.5f;
      const void* const contributions[] = {a.data(), b.data()};
      const Reduction reduction = Of(ReduceOp::kAverage, 1, 3, 2);
      ReduceInOrder(DType::kFloat32, reduction, contributions, 2, want.data(), count);
      ReduceInOrderTo(DType::kFloat32, DType::kFloat32, reduction, contributions, 2,
                      got.data() + offset, count, Store::kStreamed);
      EXPECT_TRUE(std::equal(want.begin(), want.end(), got.begin() + offset))
          << count << " elements at " << offset;
      EXPECT_EQ(got.back(), -1);
      EXPECT_EQ(offset == 0 ? -1 : got[offset - 1], -1);
    }
  }
  std::vector<uint16_t> halves(4099);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  const void* const contributions[] = {halves.data(), halves.data()};
  std::vector<double> got(halves.size()), want(halves.size());
  const auto run = [&](std::vector<double>* out, Store store) {
    ReduceInOrderTo(DType::kFloat64, DType::kBfloat16, Of(ReduceOp::kSum), contributions, 2,
                    out->data(), static_cast<int64_t>(out->size()), store);
  };
  run(&want, Store::kCached);
  run(&got, Store::kStreamed);
  EXPECT_EQ(got, want);
}

}  // namespace
}  // namespace hvd
