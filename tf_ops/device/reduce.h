// The one reduction: element by element over all contributions, in rank order.
//
// Every transport of ours ends here, so results are the same bits however tensors
// were fused, cut into chunks or sent (CONTRACT: "Same bits").
//
//   result = ((x0 op x1) op x2) ...
//
// - float32, float64: each x is first multiplied by `prescale` in its own type.
// - float16, bfloat16: as float32, rounded once, at the end.
// - integers: reduced exactly in their type, wrapping.  Then, if a factor is not 1,
//   multiplied once by all of them in float64 and rounded toward zero; without
//   factors Average is the integer division by the number of ranks.
// - bool: Sum and Max are "or", Product and Min are "and".
//
// Average divides by `divisor`; `postscale` comes last.

#ifndef TF_OPS_DEVICE_REDUCE_H_
#define TF_OPS_DEVICE_REDUCE_H_

#include <cstdint>

#include "tf_ops/base/types.h"

namespace hvd {

struct Reduction {
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1.0;
  double postscale = 1.0;
  int divisor = 1;  // Average: ranks that count; else 1
};

// out[i] = the reduction over contributions[0 .. n-1][i], for i in [0, count).
// `out` may be one of the contributions.
//
// REQUIRES: n >= 1; every pointer is aligned to the type; op is not Adasum.
void ReduceInOrder(DType dtype, const Reduction& reduction, const void* const* contributions, int n,
                   void* out, int64_t count);

// How results are written.
enum class Store {
  kCached,
  kStreamed,  // past the caches: for so many that whoever reads them finds none there anyway
};

// The same, rounded once more: the result, of `dtype`, is cast to `out_dtype`.  `out` is none of
// the contributions.
void ReduceInOrderTo(DType out_dtype, DType dtype, const Reduction& reduction,
                     const void* const* contributions, int n, void* out, int64_t count,
                     Store store = Store::kCached);

// out[i] = in[i], rounded to nearest, ties to even, where `to` is narrower; float64 to 16 bits by
// way of float32.  Of equal types it is a copy.
//
// REQUIRES: the types are equal, or IsFloating() and one has 16 bits and the other more; `in` and
// `out` do not overlap.
void Cast(DType from, DType to, const void* in, void* out, int64_t count);

}  // namespace hvd

#endif  // TF_OPS_DEVICE_REDUCE_H_
