// The reduction for every machine.

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "tf_ops/device/half.h"
#include "tf_ops/device/reduce_kernels.h"

namespace hvd {
namespace {

#include "tf_ops/device/reduce_kernels.inc"

bool CanRun() { return true; }

}  // namespace

const ReduceKernels kReducePlain = {"plain", CanRun, Run, RunCast};

}  // namespace hvd
