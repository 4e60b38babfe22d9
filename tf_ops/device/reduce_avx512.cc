// The reduction for machines with AVX-512.

#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "tf_ops/device/half.h"
#include "tf_ops/device/reduce_kernels.h"

// Only from here on: what headers define must run on every machine.
#pragma GCC target("f16c,avx512f,avx512bw,avx512vl,avx512dq,prefer-vector-width=512")

#define HVD_F16C

namespace hvd {
namespace {

#include "tf_ops/device/reduce_kernels.inc"

bool CanRun() {
  return __builtin_cpu_supports("f16c") != 0 && __builtin_cpu_supports("avx512f") != 0 &&
         __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512vl") != 0 &&
         __builtin_cpu_supports("avx512dq") != 0;
}

}  // namespace

const ReduceKernels kReduceAvx512 = {"avx512", CanRun, Run, RunCast};

}  // namespace hvd

#endif
