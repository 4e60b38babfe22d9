#include "tf_ops/device/reduce.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tf_ops/device/reduce_kernels.h"

namespace hvd {

std::vector<const ReduceKernels*> KernelsBestFirst() {
  return {
#if defined(__x86_64__)
      &kReduceAvx512, &kReduceAvx2,
#endif
      &kReducePlain};
}

namespace {

const ReduceKernels& Best() {
  static const ReduceKernels& best = *[] {
    for (const ReduceKernels* kernels : KernelsBestFirst()) {
      if (kernels->can_run()) return kernels;
    }
    return &kReducePlain;
  }();
  return best;
}

// Copies past the caches.  `from` is aligned to 16 bytes where `to` is.
void Stream(const std::byte* from, std::byte* to, size_t bytes) {
#if defined(__x86_64__)
  if (reinterpret_cast<uintptr_t>(to) % sizeof(__m128i) == 0) {
    for (; bytes >= sizeof(__m128i); bytes -= sizeof(__m128i)) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(to),
                       _mm_load_si128(reinterpret_cast<const __m128i*>(from)));
      from += sizeof(__m128i);
      to += sizeof(__m128i);
    }
  }
#endif
  std::memcpy(to, from, bytes);
}

// What was streamed is seen by others like all else that was written before.
void EndStream() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

}  // namespace

void ReduceInOrder(DType dtype, const Reduction& reduction, const void* const* contributions, int n,
                   void* out, int64_t count) {
  Best().run(dtype, reduction, contributions, n, out, count);
}

void ReduceInOrderTo(DType out_dtype, DType dtype, const Reduction& reduction,
                     const void* const* contributions, int n, void* out, int64_t count,
                     Store store) {
  const bool cast = out_dtype != dtype;
  if (!cast && store == Store::kCached) {
    return ReduceInOrder(dtype, reduction, contributions, n, out, count);
  }
  // Tiles stay in the first-level cache.
  constexpr int64_t kTile = 512;
  alignas(64) std::byte reduced[kTile * 8];
  alignas(64) std::byte wide[kTile * 8];
  const size_t item = ItemBytes(dtype);
  const size_t out_item = ItemBytes(out_dtype);
  std::vector<const void*> at(contributions, contributions + n);
  std::byte* to = static_cast<std::byte*>(out);
  for (int64_t begin = 0; begin < count; begin += kTile, to += kTile * out_item) {
    const int64_t len = std::min(kTile, count - begin);
    for (int r = 0; r < n; ++r) {
      at[r] = static_cast<const std::byte*>(contributions[r]) + begin * item;
    }
    ReduceInOrder(dtype, reduction, at.data(), n, reduced, len);
    if (store == Store::kCached) {
      Cast(dtype, out_dtype, reduced, to, len);
    } else {
      if (cast) Cast(dtype, out_dtype, reduced, wide, len);
      Stream(cast ? wide : reduced, to, len * out_item);
    }
  }
  if (store == Store::kStreamed) EndStream();
}

void Cast(DType from, DType to, const void* in, void* out, int64_t count) {
  if (from == to) {
    if (count == 0) return;  // `in` and `out` may be null
    std::memcpy(out, in, count * ItemBytes(from));
  } else {
    Best().cast(from, to, in, out, count);
  }
}

}  // namespace hvd
