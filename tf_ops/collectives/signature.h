// Signature: all that ranks must know of a request to match and check it.
//
// It travels once per tensor (the full request of CONTRACT: "The cache").

#ifndef TF_OPS_COLLECTIVES_SIGNATURE_H_
#define TF_OPS_COLLECTIVES_SIGNATURE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tf_ops/base/strings.h"
#include "tf_ops/base/types.h"

namespace hvd {

struct Signature {
  std::string name;  // the wire name; ranks are matched by (process_set, name)
  int process_set = 0;
  Kind kind = Kind::kBarrier;
  DType dtype = DType::kUint8;
  ReduceOp op = ReduceOp::kSum;  // reductions
  double prescale = 1.0;         // reductions
  double postscale = 1.0;        // reductions
  int root = 0;                  // broadcast; a global rank
  bool gradient = false;         // of a tf.compat.v1 DistributedOptimizer (CONTRACT: Leaving)
  std::vector<int64_t> shape;    // of this rank's tensor

  // Elements of this rank's tensor.
  int64_t count() const {
    int64_t n = 1;
    for (int64_t d : shape) n *= d;
    return n;
  }
  // Elements of one row.  REQUIRES: at least one dimension.
  int64_t row_count() const {
    int64_t n = 1;
    for (size_t i = 1; i < shape.size(); ++i) n *= shape[i];
    return n;
  }
  int64_t bytes() const { return count() * static_cast<int64_t>(ItemBytes(dtype)); }

  // "allreduce 'dense/kernel'": how every message about it begins.
  std::string Title() const { return StrCat(Name(kind), " '", name, "'"); }
};

}  // namespace hvd

#endif  // TF_OPS_COLLECTIVES_SIGNATURE_H_
