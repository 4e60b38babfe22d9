#include "tf_ops/collectives/algorithms/allreduce.h"

#include <algorithm>

#include "tf_ops/base/slices.h"
#include "tf_ops/collectives/algorithms/block.h"
#include "tf_ops/transport/segment_view.h"

namespace hvd {
Status AllreduceExchange(Transport& transport, const CollectiveCall& call, Bytes scratch) {
  const size_t item = ItemBytes(call.dtype);
  const int n = transport.size();
  const int me = transport.rank();
  const int64_t total = call.TotalCount();
  const int64_t block = std::min(BlockCount(scratch, n, item), total);
  const size_t stride = RoundUp(block * item);
  SegmentView view(call);
  std::vector<const void*> contributions(n);
  for (int64_t begin = 0; begin < total; begin += block) {
    const int64_t count = std::min(block, total - begin);
    view.Seek(begin);
    std::byte* const pack = scratch.data;
    const std::byte* const mine = view.Input(count, pack);
    contributions[me] = mine;
    for (int s = 1; s < n; ++s) {
      const int to = (me + s) % n;
      const int from = (me - s + n) % n;
      // Part 0 holds my block, the parts behind it those of the others, by distance.
      const Bytes theirs(scratch.data + s * stride, count * item);
      HVD_RETURN_IF_ERROR(
          transport.SendRecv({to, ConstBytes(mine, count * item), from, theirs, {}}));
      contributions[from] = theirs.data;
    }
    std::byte* const out = view.Output(count, pack);
    ReduceInOrder(call.dtype, call.reduction, contributions.data(), n, out, count);
    view.Unpack(count, out);
  }
  return Status::Ok();
}

Status AllreduceDirect(Transport& transport, const CollectiveCall& call, Bytes scratch) {
  const size_t item = ItemBytes(call.dtype);
  const int n = transport.size();
  const int me = transport.rank();
  const int64_t total = call.TotalCount();
  // Scratch: one packed block, and n slices of one (a slice is rounded up).
  const size_t usable = scratch.size - n * kBlockAlign;
  const int64_t block = std::min(BlockCount({scratch.data, usable}, 2, item), total);
  std::byte* const pack = scratch.data;
  std::byte* const slices = scratch.data + RoundUp(block * item);
  SegmentView view(call);
  std::vector<const void*> contributions(n);
  for (int64_t begin = 0; begin < total; begin += block) {
    const int64_t count = std::min(block, total - begin);
    view.Seek(begin);
    const auto slice_begin = [&](int r) { return SliceBegin(count, r, n); };
    const auto slice_bytes = [&](int r) { return (slice_begin(r + 1) - slice_begin(r)) * item; };
    const size_t stride = RoundUp(slice_bytes(0));

    const std::byte* const mine = view.Input(count, pack);
    contributions[me] = mine + slice_begin(me) * item;
    for (int s = 1; s < n; ++s) {
      const int to = (me + s) % n;
      const int from = (me - s + n) % n;
      std::byte* const theirs = slices + from * stride;
      HVD_RETURN_IF_ERROR(
          transport.SendRecv({to,
                              ConstBytes(mine + slice_begin(to) * item, slice_bytes(to)),
                              from,
                              Bytes(theirs, slice_bytes(me)),
                              {}}));
      contributions[from] = theirs;
    }

    // In place of the input where `in` is `out`: every slice of it has been sent.
    std::byte* const out = view.Output(count, pack);
    const Bytes reduced(out + slice_begin(me) * item, slice_bytes(me));
    ReduceInOrder(call.dtype, call.reduction, contributions.data(), n, reduced.data,
                  slice_begin(me + 1) - slice_begin(me));
    for (int s = 1; s < n; ++s) {
      const int to = (me + s) % n;
      const int from = (me - s + n) % n;
      HVD_RETURN_IF_ERROR(transport.SendRecv(
          {to, reduced, from, Bytes(out + slice_begin(from) * item, slice_bytes(from)), {}}));
    }
    view.Unpack(count, out);
  }
  return Status::Ok();
}

}  // namespace hvd
