#include "tf_ops/device/reduce.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "tf_ops/device/half.h"

namespace hvd {
namespace {

// Elements per tile: the accumulators of a tile stay in the first-level cache.
constexpr int64_t kTile = 1024;

// How T is accumulated: 16-bit floats in float32, all else in itself.
template <typename T>
struct Accumulator {
  using Type = T;
  static Type Load(T x) { return x; }
  static T Store(Type x) { return x; }
};
template <>
struct Accumulator<Float16> {
  using Type = float;
  static float Load(Float16 x) { return x.ToFloat(); }
  static Float16 Store(float x) { return Float16::FromFloat(x); }
};
template <>
struct Accumulator<Bfloat16> {
  using Type = float;
  static float Load(Bfloat16 x) { return x.ToFloat(); }
  static Bfloat16 Store(float x) { return Bfloat16::FromFloat(x); }
};

// Signed overflow is undefined in C++; the contract says wrapping.  Multiplying
// small unsigned types would promote to int, so go through an unsigned type.
template <typename A>
using Wrapping = std::conditional_t<(sizeof(A) > 4), uint64_t, uint32_t>;

template <typename A>
using Widest = std::conditional_t<std::is_signed_v<A>, int64_t, uint64_t>;

struct SumOp {
  template <typename A>
  static A Apply(A a, A b) {
    if constexpr (std::is_integral_v<A>) {
      return static_cast<A>(static_cast<Wrapping<A>>(a) + static_cast<Wrapping<A>>(b));
    } else {
      return a + b;
    }
  }
};
struct ProductOp {
  template <typename A>
  static A Apply(A a, A b) {
    if constexpr (std::is_integral_v<A>) {
      return static_cast<A>(static_cast<Wrapping<A>>(a) * static_cast<Wrapping<A>>(b));
    } else {
      return a * b;
    }
  }
};
// A NaN on any rank stays in the result.
struct MinOp {
  template <typename A>
  static A Apply(A a, A b) {
    return b < a || b != b ? b : a;
  }
};
struct MaxOp {
  template <typename A>
  static A Apply(A a, A b) {
    return b > a || b != b ? b : a;
  }
};
struct OrOp {
  template <typename A>
  static A Apply(A a, A b) {
    return a | b;
  }
};
struct AndOp {
  template <typename A>
  static A Apply(A a, A b) {
    return a & b;
  }
};

// The exact integer result of all factors at once, in float64, toward zero,
// clamped to the type.
template <typename A>
A ScaleInteger(A x, double factor, int divisor) {
  const double scaled = std::trunc(static_cast<double>(x) * factor / divisor);
  if (scaled != scaled) return 0;
  if (scaled <= static_cast<double>(std::numeric_limits<A>::min())) {
    return std::numeric_limits<A>::min();
  }
  if (scaled >= static_cast<double>(std::numeric_limits<A>::max())) {
    return std::numeric_limits<A>::max();
  }
  return static_cast<A>(scaled);
}

template <typename T, typename Op>
void Reduce(const Reduction& reduction, const void* const* contributions, int n, void* out_bytes,
            int64_t count) {
  using Acc = Accumulator<T>;
  using A = typename Acc::Type;
  constexpr bool kInteger = std::is_integral_v<A>;
  // One product of n prescaled numbers holds the factor n times.
  const double integer_factor =
      (std::is_same_v<Op, ProductOp> ? std::pow(reduction.prescale, n) : reduction.prescale) *
      reduction.postscale;
  T* const out = static_cast<T*>(out_bytes);
  A acc[kTile];
  for (int64_t begin = 0; begin < count; begin += kTile) {
    const int64_t len = std::min(kTile, count - begin);
    for (int r = 0; r < n; ++r) {
      const T* const x = static_cast<const T*>(contributions[r]) + begin;
      const auto load = [&](int64_t i) {
        if constexpr (kInteger) {
          return Acc::Load(x[i]);
        } else {
          return static_cast<A>(Acc::Load(x[i]) * static_cast<A>(reduction.prescale));
        }
      };
      if (r == 0) {
        for (int64_t i = 0; i < len; ++i) acc[i] = load(i);
      } else {
        for (int64_t i = 0; i < len; ++i) acc[i] = Op::Apply(acc[i], load(i));
      }
    }
    if constexpr (kInteger) {
      if (integer_factor != 1.0) {
        for (int64_t i = 0; i < len; ++i) {
          acc[i] = ScaleInteger(acc[i], integer_factor, reduction.divisor);
        }
      } else if (reduction.divisor != 1) {
        // Not in A: 128 ranks are -128 in an int8, and 256 are 0.
        const auto divisor = static_cast<Widest<A>>(reduction.divisor);
        for (int64_t i = 0; i < len; ++i) acc[i] = static_cast<A>(acc[i] / divisor);
      }
    } else {
      if (reduction.divisor != 1) {
        for (int64_t i = 0; i < len; ++i) acc[i] /= static_cast<A>(reduction.divisor);
      }
      if (reduction.postscale != 1.0) {
        for (int64_t i = 0; i < len; ++i) acc[i] *= static_cast<A>(reduction.postscale);
      }
    }
    for (int64_t i = 0; i < len; ++i) out[begin + i] = Acc::Store(acc[i]);
  }
}

template <typename T>
void ReduceNumbers(Reduction reduction, const void* const* contributions, int n, void* out,
                   int64_t count) {
  // An integer's factors come after the reduction, where a negative prescale would
  // have turned the smallest into the largest.
  if (std::is_integral_v<T> && reduction.prescale < 0) {
    if (reduction.op == ReduceOp::kMin) {
      reduction.op = ReduceOp::kMax;
    } else if (reduction.op == ReduceOp::kMax) {
      reduction.op = ReduceOp::kMin;
    }
  }
  switch (reduction.op) {
    case ReduceOp::kMin:
      return Reduce<T, MinOp>(reduction, contributions, n, out, count);
    case ReduceOp::kMax:
      return Reduce<T, MaxOp>(reduction, contributions, n, out, count);
    case ReduceOp::kProduct:
      return Reduce<T, ProductOp>(reduction, contributions, n, out, count);
    default:
      return Reduce<T, SumOp>(reduction, contributions, n, out, count);
  }
}

void ReduceBools(const Reduction& reduction, const void* const* contributions, int n, void* out,
                 int64_t count) {
  const Reduction plain;
  if (reduction.op == ReduceOp::kSum || reduction.op == ReduceOp::kMax) {
    return Reduce<uint8_t, OrOp>(plain, contributions, n, out, count);
  }
  return Reduce<uint8_t, AndOp>(plain, contributions, n, out, count);
}

}  // namespace

void ReduceInOrder(DType dtype, const Reduction& reduction, const void* const* contributions, int n,
                   void* out, int64_t count) {
  switch (dtype) {
    case DType::kBool:
      return ReduceBools(reduction, contributions, n, out, count);
    case DType::kUint8:
      return ReduceNumbers<uint8_t>(reduction, contributions, n, out, count);
    case DType::kInt8:
      return ReduceNumbers<int8_t>(reduction, contributions, n, out, count);
    case DType::kUint16:
      return ReduceNumbers<uint16_t>(reduction, contributions, n, out, count);
    case DType::kInt16:
      return ReduceNumbers<int16_t>(reduction, contributions, n, out, count);
    case DType::kInt32:
      return ReduceNumbers<int32_t>(reduction, contributions, n, out, count);
    case DType::kInt64:
      return ReduceNumbers<int64_t>(reduction, contributions, n, out, count);
    case DType::kFloat16:
      return ReduceNumbers<Float16>(reduction, contributions, n, out, count);
    case DType::kBfloat16:
      return ReduceNumbers<Bfloat16>(reduction, contributions, n, out, count);
    case DType::kFloat32:
      return ReduceNumbers<float>(reduction, contributions, n, out, count);
    case DType::kFloat64:
      return ReduceNumbers<double>(reduction, contributions, n, out, count);
  }
}

}  // namespace hvd
