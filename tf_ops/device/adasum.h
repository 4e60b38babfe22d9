// Adasum of two vectors: Maleki et al., "Scaling Distributed Training with Adaptive Summation",
// arXiv:2006.02924, equation 2.
//
// Each is shortened by its projection on the other, so that what both point at counts once:
//   (1 - a.b / 2|a|^2) a + (1 - a.b / 2|b|^2) b
// Orthogonal vectors are added, equal ones averaged.  A vector of zeros changes nothing.
//
// Dot products and the sum are made in float64, in order, so every machine gives the same bits.

#ifndef TF_OPS_DEVICE_ADASUM_H_
#define TF_OPS_DEVICE_ADASUM_H_

#include <cstdint>

#include "tf_ops/base/types.h"

namespace hvd {

// `out` may be `a` or `b`.
//
// REQUIRES: IsFloating(dtype); every pointer is aligned to the type.
void AdasumPair(DType dtype, const void* a, const void* b, void* out, int64_t count);

}  // namespace hvd

#endif  // TF_OPS_DEVICE_ADASUM_H_
