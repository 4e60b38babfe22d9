// float16 (IEEE 754 binary16) and bfloat16 to and from float32.
//
// Rounds to nearest, ties to even; NaN stays NaN; overflow gives infinity.  Plain
// integer code, so every machine gives the same bits.

#ifndef TF_OPS_DEVICE_HALF_H_
#define TF_OPS_DEVICE_HALF_H_

#include <cstdint>
#include <cstring>

namespace hvd {

inline uint32_t BitsOf(float f) {
  uint32_t bits;
  std::memcpy(&bits, &f, sizeof(bits));
  return bits;
}

inline float FloatOf(uint32_t bits) {
  float f;
  std::memcpy(&f, &bits, sizeof(f));
  return f;
}

struct Bfloat16 {
  uint16_t bits;

  float ToFloat() const { return FloatOf(static_cast<uint32_t>(bits) << 16); }
  static Bfloat16 FromFloat(float f) {
    const uint32_t x = BitsOf(f);
    if ((x & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((x >> 16) | 0x40u)};
    return {static_cast<uint16_t>((x + 0x7fffu + ((x >> 16) & 1u)) >> 16)};
  }
};

struct Float16 {
  uint16_t bits;

  float ToFloat() const {
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
    const uint32_t magnitude = bits & 0x7fffu;
    if (magnitude >= 0x7c00u) return FloatOf(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
    if (magnitude >= 0x0400u) return FloatOf(sign | ((magnitude << 13) + (112u << 23)));
    // Subnormal: magnitude * 2^-24, exact in float32.
    const float value = static_cast<float>(magnitude) * FloatOf(103u << 23);
    return FloatOf(sign | BitsOf(value));
  }
  static Float16 FromFloat(float f) {
    const uint32_t x = BitsOf(f);
    const uint16_t sign = static_cast<uint16_t>((x >> 16) & 0x8000u);
    const uint32_t magnitude = x & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return {static_cast<uint16_t>(sign | 0x7e00u)};
    // 65520 and above rounds to infinity.
    if (magnitude >= 0x477ff000u) return {static_cast<uint16_t>(sign | 0x7c00u)};
    if (magnitude >= 0x38800000u) {
      const uint32_t rebiased = magnitude - (112u << 23);
      return {static_cast<uint16_t>(sign | ((rebiased + 0xfffu + ((rebiased >> 13) & 1u)) >> 13))};
    }
    // Subnormal: adding 0.5 lines the float's last bit up with 2^-24, rounding by the FPU.
    const float shifted = FloatOf(magnitude) + 0.5f;
    return {static_cast<uint16_t>(sign | (BitsOf(shifted) - 0x3f000000u))};
  }
};

}  // namespace hvd

#endif  // TF_OPS_DEVICE_HALF_H_
