// Signature: all that ranks must know of a request to match and check it.
//
// It travels once per tensor (the full request of CONTRACT: "The cache").

#ifndef TF_OPS_COLLECTIVES_SIGNATURE_H_
#define TF_OPS_COLLECTIVES_SIGNATURE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tf_ops/base/strings.h"
#include "tf_ops/base/types.h"

namespace hvd {

struct Signature {
  std::string name;  // the wire name; ranks are matched by (process_set, name)
  int process_set = 0;
  Kind kind = Kind::kBarrier;
  DType dtype = DType::kUint8;  // of all tensors
  // allreduce: what the elements are cast to for the way, and reduced as; none: `dtype`.
  std::optional<DType> wire_dtype;
  ReduceOp op = ReduceOp::kSum;  // reductions
  double prescale = 1.0;         // reductions
  double postscale = 1.0;        // reductions
  // broadcast: a global rank.  Removal of a process set: its id.  Where the coordinator answers
  // (Collective::answered): the answer.
  int root = 0;
  bool gradient = false;  // of a tf.compat.v1 DistributedOptimizer (CONTRACT: Leaving)
  // A group: its tensors are one request, so either all of it runs or nothing.  Where this is
  // false there is at most one tensor.
  bool grouped = false;
  // The tensors of the caller's group that travel as requests of their own, since their dtype is
  // another.
  int others = 0;
  std::vector<std::vector<int64_t>> shapes;  // of this rank's tensors
  std::vector<int64_t> splits;               // alltoall: rows for each member, in order
  std::vector<int> ranks;                    // of a process set to add, ascending

  // REQUIRES: there is a tensor.
  const std::vector<int64_t>& shape() const { return shapes[0]; }

  // Elements of tensor `i` of this rank.
  int64_t count(size_t i) const {
    int64_t n = 1;
    for (int64_t d : shapes[i]) n *= d;
    return n;
  }
  // Elements of all.
  int64_t count() const {
    int64_t n = 0;
    for (size_t i = 0; i < shapes.size(); ++i) n += count(i);
    return n;
  }
  // Elements of one row of tensor `i`.  REQUIRES: it has at least one dimension.
  int64_t row_count(size_t i) const {
    int64_t n = 1;
    for (size_t d = 1; d < shapes[i].size(); ++d) n *= shapes[i][d];
    return n;
  }
  DType sent_as() const { return wire_dtype.value_or(dtype); }
  // What travels.
  int64_t bytes() const { return count() * static_cast<int64_t>(ItemBytes(sent_as())); }

  // "allreduce 'dense/kernel'", or "join", which has no name of its own: how every message about
  // it begins.
  std::string Title() const;
};

}  // namespace hvd

#endif  // TF_OPS_COLLECTIVES_SIGNATURE_H_
