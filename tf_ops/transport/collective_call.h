// CollectiveCall: one collective over one process set, as the data plane sees it.
//
// It carries segment lists, not a packed buffer: a transport may pack straight into
// what it sends (shared memory), or scatter and gather (CONTRACT: "The seam to the data
// plane").  The segments of one call are one logical array, cut anywhere.

#ifndef TF_OPS_TRANSPORT_COLLECTIVE_CALL_H_
#define TF_OPS_TRANSPORT_COLLECTIVE_CALL_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "tf_ops/base/status.h"
#include "tf_ops/base/types.h"
#include "tf_ops/device/reduce.h"

namespace hvd {

// One tensor of the call on this rank.  `in` may equal `out`, and either may be null
// where a rank has no part (a barrier, an empty tensor).
struct Segment {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  int64_t count = 0;  // elements of `in`
};

// Some elements of one tensor of the call.
struct Part {
  int64_t begin = 0;
  int64_t count = 0;
};

struct CollectiveCall {
  // Its position in the ordered stream: the same on all ranks of the set, and growing from
  // call to call of one rank.
  uint64_t sequence = 0;
  Kind kind = Kind::kBarrier;
  DType dtype = DType::kUint8;  // as which elements travel and are reduced
  // allreduce: of the segments, where it is another: elements are cast on their way out of them
  // and into them.
  std::optional<DType> segment_dtype;
  Reduction reduction;  // allreduce, reducescatter
  int root = 0;         // broadcast: a rank of the set; else the coordinator's answer
  std::vector<Segment> segments;
  // Of each segment, by rank of the set.
  std::vector<std::vector<Part>> to;    // alltoall, reducescatter: what of `in` goes there
  std::vector<std::vector<Part>> from;  // allgather, alltoall: what of `out` comes from there

  DType in_memory() const { return segment_dtype.value_or(dtype); }

  int64_t TotalCount() const {
    int64_t total = 0;
    for (const Segment& segment : segments) total += segment.count;
    return total;
  }
};

// Runs exactly once, on any thread, when neither this rank's helpers nor its peers touch
// the segments any more.
using CallDone = std::function<void(Status)>;

}  // namespace hvd

#endif  // TF_OPS_TRANSPORT_COLLECTIVE_CALL_H_
