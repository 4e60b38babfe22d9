#include "tf_ops/device/reduce.h"

#include "tf_ops/device/reduce_kernels.h"

namespace hvd {

std::vector<const ReduceKernels*> KernelsBestFirst() {
  return {
#if defined(__x86_64__)
      &kReduceAvx512, &kReduceAvx2,
#endif
      &kReducePlain};
}

void ReduceInOrder(DType dtype, const Reduction& reduction, const void* const* contributions, int n,
                   void* out, int64_t count) {
  static const ReduceKernels& best = *[] {
    for (const ReduceKernels* kernels : KernelsBestFirst()) {
      if (kernels->can_run()) return kernels;
    }
    return &kReducePlain;
  }();
  best.run(dtype, reduction, contributions, n, out, count);
}

}  // namespace hvd
