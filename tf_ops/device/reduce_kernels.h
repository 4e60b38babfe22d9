// The reduction and the casts, compiled for several instruction sets.
//
// To add one: a file like reduce_avx2.cc, its line here and in reduce.cc.

#ifndef TF_OPS_DEVICE_REDUCE_KERNELS_H_
#define TF_OPS_DEVICE_REDUCE_KERNELS_H_

#include <cstdint>
#include <vector>

#include "tf_ops/device/reduce.h"

namespace hvd {

struct ReduceKernels {
  const char* name;   // of the instruction set
  bool (*can_run)();  // on this machine
  // As ReduceInOrder().
  void (*run)(DType dtype, const Reduction& reduction, const void* const* contributions, int n,
              void* out, int64_t count);
  // As Cast() of types that differ.
  void (*cast)(DType from, DType to, const void* in, void* out, int64_t count);
};

extern const ReduceKernels kReducePlain;
#if defined(__x86_64__)
extern const ReduceKernels kReduceAvx2;
extern const ReduceKernels kReduceAvx512;
#endif

// Those of this build, the best first; the last one runs everywhere.
std::vector<const ReduceKernels*> KernelsBestFirst();

}  // namespace hvd

#endif  // TF_OPS_DEVICE_REDUCE_KERNELS_H_
