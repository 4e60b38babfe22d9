#include "tf_ops/device/adasum.h"

#include "tf_ops/device/half.h"

namespace hvd {
namespace {

double Load(double x) { return x; }
double Load(float x) { return x; }
double Load(Float16 x) { return x.ToFloat(); }
double Load(Bfloat16 x) { return x.ToFloat(); }

void Store(double x, double* out) { *out = x; }
void Store(double x, float* out) { *out = static_cast<float>(x); }
void Store(double x, Float16* out) { *out = Float16::FromFloat(static_cast<float>(x)); }
void Store(double x, Bfloat16* out) { *out = Bfloat16::FromFloat(static_cast<float>(x)); }

template <typename T>
void Combine(const void* a_bytes, const void* b_bytes, void* out_bytes, int64_t count) {
  const T* const a = static_cast<const T*>(a_bytes);
  const T* const b = static_cast<const T*>(b_bytes);
  T* const out = static_cast<T*>(out_bytes);
  double dot = 0, a_square = 0, b_square = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double x = Load(a[i]);
    const double y = Load(b[i]);
    dot += x * y;
    a_square += x * x;
    b_square += y * y;
  }
  const double a_factor = a_square == 0 ? 1 : 1 - dot / (2 * a_square);
  const double b_factor = b_square == 0 ? 1 : 1 - dot / (2 * b_square);
  for (int64_t i = 0; i < count; ++i) {
    Store(a_factor * Load(a[i]) + b_factor * Load(b[i]), &out[i]);
  }
}

}  // namespace

void AdasumPair(DType dtype, const void* a, const void* b, void* out, int64_t count) {
  switch (dtype) {
    case DType::kFloat16:
      return Combine<Float16>(a, b, out, count);
    case DType::kBfloat16:
      return Combine<Bfloat16>(a, b, out, count);
    case DType::kFloat32:
      return Combine<float>(a, b, out, count);
    case DType::kFloat64:
      return Combine<double>(a, b, out, count);
    default:
      return;
  }
}

}  // namespace hvd
