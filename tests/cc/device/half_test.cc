#include "tf_ops/device/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace hvd {
namespace {

TEST(Half, EveryFloat16SurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const Float16 half{static_cast<uint16_t>(bits)};
    const float f = half.ToFloat();
    if (std::isnan(f)) {
      EXPECT_TRUE(std::isnan(Float16::FromFloat(f).ToFloat()));
    } else {
      ASSERT_EQ(Float16::FromFloat(f).bits, bits) << f;
    }
  }
}

TEST(Half, EveryBfloat16SurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float f = Bfloat16{static_cast<uint16_t>(bits)}.ToFloat();
    if (std::isnan(f)) {
      EXPECT_TRUE(std::isnan(Bfloat16::FromFloat(f).ToFloat()));
    } else {
      ASSERT_EQ(Bfloat16::FromFloat(f).bits, bits) << f;
    }
  }
}

// Between each two neighbours: the middle goes to the even one, either side to the nearer.
template <typename Half>
void CheckRounding(uint16_t infinity) {
  for (uint16_t bits = 0; bits + 1 < infinity; ++bits) {
    const double low = Half{bits}.ToFloat();
    const double high = Half{static_cast<uint16_t>(bits + 1)}.ToFloat();
    const float middle = static_cast<float>((low + high) / 2);  // exact: few bits
    ASSERT_EQ(Half::FromFloat(middle).bits, bits + (bits & 1)) << middle;
    ASSERT_EQ(Half::FromFloat(std::nextafter(middle, -1.0f)).bits, bits) << middle;
    ASSERT_EQ(Half::FromFloat(std::nextafter(middle, std::numeric_limits<float>::infinity())).bits,
              bits + 1)
        << middle;
  }
}

TEST(Half, Float16RoundsToNearestEven) { CheckRounding<Float16>(0x7c00); }

TEST(Half, Bfloat16RoundsToNearestEven) { CheckRounding<Bfloat16>(0x7e80); }

TEST(Half, TheEdges) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(Float16::FromFloat(65504).bits, 0x7bff);
  EXPECT_EQ(Float16::FromFloat(65519.99f).bits, 0x7bff);
  EXPECT_EQ(Float16::FromFloat(65520).bits, 0x7c00);
  EXPECT_EQ(Float16::FromFloat(-inf).bits, 0xfc00);
  EXPECT_EQ(Float16::FromFloat(-0.0f).bits, 0x8000);
  EXPECT_EQ(Float16::FromFloat(1e-9f).bits, 0);
  EXPECT_EQ(Bfloat16::FromFloat(std::numeric_limits<float>::max()).bits, 0x7f80);
  EXPECT_EQ(Bfloat16::FromFloat(-inf).bits, 0xff80);
}

}  // namespace
}  // namespace hvd
