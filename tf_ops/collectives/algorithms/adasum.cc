#include "tf_ops/collectives/algorithms/adasum.h"

#include <memory>
#include <new>

#include "tf_ops/base/strings.h"
#include "tf_ops/device/adasum.h"

namespace hvd {
namespace {

void Scale(DType dtype, double factor, const void* in, void* out, int64_t count) {
  ReduceInOrder(dtype, {ReduceOp::kSum, factor, 1.0, 1}, &in, 1, out, count);
}

}  // namespace

Status AllreduceAdasum(Transport& transport, const CollectiveCall& call) {
  const int me = transport.rank();
  for (const Segment& segment : call.segments) {
    const size_t bytes = segment.count * ItemBytes(call.dtype);
    if (bytes == 0) continue;
    const std::unique_ptr<std::byte[]> theirs(new (std::nothrow) std::byte[bytes]);
    if (theirs == nullptr) {
      return Status::Internal(StrCat("no memory for ", bytes, " bytes of another rank's tensor"));
    }
    Scale(call.dtype, call.reduction.prescale, segment.in, segment.out, segment.count);
    for (int bit = 1; bit < transport.size(); bit <<= 1) {
      const int peer = me ^ bit;
      HVD_RETURN_IF_ERROR(transport.SendRecv(
          {peer, ConstBytes(segment.out, bytes), peer, Bytes(theirs.get(), bytes), {}}));
      const void* const lower = me < peer ? segment.out : theirs.get();
      const void* const upper = me < peer ? theirs.get() : segment.out;
      AdasumPair(call.dtype, lower, upper, segment.out, segment.count);
    }
    Scale(call.dtype, call.reduction.postscale, segment.out, segment.out, segment.count);
  }
  return Status::Ok();
}

}  // namespace hvd
