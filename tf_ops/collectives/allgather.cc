// allgather: every rank gets all ranks' rows, in rank order.
//
// Algorithm: n-1 steps of pairwise exchange; in step s a rank sends its rows to the rank
// s above and receives from the rank s below.  (n-1) x own bytes sent, straight from the
// input and into the output.

#include <cstring>

#include "tf_ops/collectives/collective.h"

namespace hvd {
namespace {

Status ValidateAllgather(const Signature& s, const std::vector<int>&) {
  if (!s.shape.empty()) return Status::Ok();
  return Status::InvalidArgument(
      StrCat(s.Title(), ": a scalar has no rows to gather; reshape it to [1]"));
}

Status AgreeAllgather(const Signature& a, int rank_a, const Signature& b, int rank_b) {
  if (a.shape.size() != b.shape.size() ||
      !std::equal(a.shape.begin() + 1, a.shape.end(), b.shape.begin() + 1)) {
    return Differ(a, "shape", rank_a, ShapeText(a.shape), rank_b, ShapeText(b.shape),
                  "all dimensions but the first must match on all ranks");
  }
  return Status::Ok();
}

std::vector<int64_t> AllRows(const Signature& s, const std::vector<int64_t>& rows) {
  std::vector<int64_t> shape = s.shape;
  shape[0] = 0;
  for (int64_t n : rows) shape[0] += n;
  return shape;
}

Status RunAllgather(Transport& transport, const CollectiveCall& call, Bytes) {
  const size_t item = ItemBytes(call.dtype);
  const Segment& segment = call.segments[0];
  const int n = transport.size();
  const int me = transport.rank();
  std::vector<size_t> offset(n + 1, 0);  // bytes
  for (int r = 0; r < n; ++r) offset[r + 1] = offset[r] + call.counts[r] * item;
  const Bytes out(segment.out, offset[n]);
  const auto part = [&](int r) { return out.sub(offset[r], offset[r + 1] - offset[r]); };

  const Bytes mine = part(me);
  if (!mine.empty()) std::memmove(mine.data, segment.in, mine.size);
  for (int s = 1; s < n; ++s) {
    const int to = (me + s) % n;
    const int from = (me - s + n) % n;
    HVD_RETURN_IF_ERROR(transport.SendRecv({to, mine, from, part(from), {}}));
  }
  return Status::Ok();
}

}  // namespace

const Collective kAllgather = {Kind::kAllgather,  /*elementwise=*/false, /*uneven_rows=*/true,
                               ValidateAllgather, AgreeAllgather,        AllRows,
                               RunAllgather};

}  // namespace hvd
