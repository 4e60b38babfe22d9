#include "tf_ops/device/reduce.h"

#include <algorithm>
#include <cstddef>
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

}  // namespace

void ReduceInOrder(DType dtype, const Reduction& reduction, const void* const* contributions, int n,
                   void* out, int64_t count) {
  Best().run(dtype, reduction, contributions, n, out, count);
}

void ReduceInOrderTo(DType out_dtype, DType dtype, const Reduction& reduction,
                     const void* const* contributions, int n, void* out, int64_t count) {
  if (out_dtype == dtype) return ReduceInOrder(dtype, reduction, contributions, n, out, count);
  constexpr int64_t kTileBytes = 4096;  // stays in the first-level cache
  alignas(64) std::byte tile[kTileBytes];
  const int64_t item = static_cast<int64_t>(ItemBytes(dtype));
  const int64_t out_item = static_cast<int64_t>(ItemBytes(out_dtype));
  std::vector<const void*> at(contributions, contributions + n);
  for (int64_t begin = 0; begin < count; begin += kTileBytes / item) {
    const int64_t len = std::min(kTileBytes / item, count - begin);
    for (int r = 0; r < n; ++r) {
      at[r] = static_cast<const std::byte*>(contributions[r]) + begin * item;
    }
    ReduceInOrder(dtype, reduction, at.data(), n, tile, len);
    Cast(dtype, out_dtype, tile, static_cast<std::byte*>(out) + begin * out_item, len);
  }
}

void Cast(DType from, DType to, const void* in, void* out, int64_t count) {
  if (from == to) {
    std::memcpy(out, in, count * ItemBytes(from));
  } else {
    Best().cast(from, to, in, out, count);
  }
}

}  // namespace hvd
