// float16 (IEEE 754 binary16) and bfloat16 to and from float32.
//
// Rounds to nearest, ties to even; overflow gives infinity; a NaN keeps its first bits, and
// that of a float16 becomes a quiet one.  Plain integer code, so every machine gives the same bits:
// those of the instructions for float16 of x86 (F16C), which are used where a machine has them.

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

// All cases are computed and one is chosen, without branches, so that compilers make vector code
// of loops; comparisons are signed because vector units have no others.
struct Bfloat16 {
  uint16_t bits;

  float ToFloat() const { return FloatOf(static_cast<uint32_t>(bits) << 16); }
  static Bfloat16 FromFloat(float f) {
    const uint32_t x = BitsOf(f);
    const bool is_nan = static_cast<int32_t>(x & 0x7fffffffu) > 0x7f800000;
    const uint32_t rounded = x + 0x7fffu + ((x >> 16) & 1u);
    return {static_cast<uint16_t>((is_nan ? x | 0x400000u : rounded) >> 16)};
  }
};

struct Float16 {
  uint16_t bits;

  float ToFloat() const {
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
    const int32_t magnitude = bits & 0x7fff;
    const uint32_t shifted = static_cast<uint32_t>(magnitude) << 13;
    const uint32_t normal = shifted + (112u << 23);
    const uint32_t infinity = shifted | 0x7f800000u;
    // magnitude * 2^-24, exact in float32.
    const uint32_t subnormal = BitsOf(static_cast<float>(magnitude) * FloatOf(103u << 23));
    uint32_t result = magnitude < 0x0400 ? subnormal : normal;
    result = magnitude >= 0x7c00 ? infinity : result;
    result = magnitude > 0x7c00 ? infinity | 0x400000u : result;  // NaN
    return FloatOf(sign | result);
  }
  static Float16 FromFloat(float f) {
    const uint32_t x = BitsOf(f);
    const uint32_t sign = (x >> 16) & 0x8000u;
    const int32_t magnitude = static_cast<int32_t>(x & 0x7fffffffu);
    const uint32_t rebiased = static_cast<uint32_t>(magnitude) - (112u << 23);
    const uint32_t normal = (rebiased + 0xfffu + ((rebiased >> 13) & 1u)) >> 13;
    // Adding 0.5 lines the float's last bit up with 2^-24, rounding by the FPU.
    const uint32_t subnormal =
        BitsOf(FloatOf(static_cast<uint32_t>(magnitude)) + 0.5f) - 0x3f000000u;
    uint32_t result = magnitude < 0x38800000 ? subnormal : normal;
    result = magnitude >= 0x477ff000 ? 0x7c00u : result;  // 65520 and above
    const uint32_t nan = 0x7e00u | ((static_cast<uint32_t>(magnitude) >> 13) & 0x1ffu);
    result = magnitude > 0x7f800000 ? nan : result;
    return {static_cast<uint16_t>(sign | result)};
  }
};

}  // namespace hvd

#endif  // TF_OPS_DEVICE_HALF_H_
