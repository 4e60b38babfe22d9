// The reduction for machines with AVX2 and F16C, which are the same but for very few.

#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "tf_ops/device/half.h"
#include "tf_ops/device/reduce_kernels.h"

// Only from here on: what headers define must run on every machine.
#pragma GCC target("avx2,f16c")

#define HVD_F16C

namespace hvd {
namespace {

#include "tf_ops/device/reduce_kernels.inc"

bool CanRun() { return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("f16c") != 0; }

}  // namespace

const ReduceKernels kReduceAvx2 = {"avx2", CanRun, Run, RunCast};

}  // namespace hvd

#endif
