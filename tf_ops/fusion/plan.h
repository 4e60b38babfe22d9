// The fusion plan: which ready tensors travel together.
//
// A pure function.  Rank 0 makes the plan and sends it to all, so ranks cannot disagree.

#ifndef TF_OPS_FUSION_PLAN_H_
#define TF_OPS_FUSION_PLAN_H_

#include <cstdint>
#include <tuple>
#include <vector>

#include "tf_ops/collectives/signature.h"

namespace hvd {

// What tensors of one bucket have in common.
inline auto BucketKey(const Signature& s) {
  return std::make_tuple(s.process_set, s.kind, s.dtype, s.wire_dtype, s.op, s.prescale,
                         s.postscale);
}

// Cuts `ready` (in the order it became ready) into buckets of indices into it.
//
// Tensors of one bucket agree in their BucketKey(), the collective is elementwise, and together
// they hold at most `threshold_bytes`; a larger tensor is a bucket by itself, and so is every
// tensor when the threshold is 0.  Buckets are in the order of their first tensor, and keep the
// order inside. A group counts as one tensor; unless `fuse_groups` it is a bucket by itself.
std::vector<std::vector<size_t>> PlanBuckets(const std::vector<const Signature*>& ready,
                                             int64_t threshold_bytes, bool fuse_groups = true);

// A part of a tensor costs a round of its own, so smaller ones only cost time.
inline constexpr int64_t kLeastPartBytes = 256 << 10;

// The elements that travel at once: all of a tensor, or, of one that can be cut and is larger
// than both `threshold_bytes` and kLeastPartBytes, a part of about the larger of the two.
int64_t PartCount(const Signature& s, int64_t threshold_bytes);

}  // namespace hvd

#endif  // TF_OPS_FUSION_PLAN_H_
