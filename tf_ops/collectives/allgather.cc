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
  return ValidateRows(s, "gather");
}

// The rows of tensor `i` that `member` gives.
int64_t RowsOf(const Signature& s, size_t i, const Around& around, int member) {
  return around.sizes[member * s.shapes.size() + i];
}

std::vector<int64_t> AllRows(const Signature& s, size_t i, const Around& around) {
  std::vector<int64_t> shape = s.shapes[i];
  shape[0] = 0;
  for (int r = 0; r < around.n; ++r) shape[0] += RowsOf(s, i, around, r);
  return shape;
}

void DivideAllgather(const Signature& s, size_t i, const Around& around, CollectiveCall* call) {
  std::vector<Part>& from = call->from.emplace_back();
  int64_t begin = 0;
  for (int r = 0; r < around.n; ++r) {
    const int64_t count = RowsOf(s, i, around, r) * s.row_count(i);
    from.push_back({begin, count});
    begin += count;
  }
}

Status RunAllgather(Transport& transport, const CollectiveCall& call, Bytes) {
  const int64_t item = ItemBytes(call.dtype);
  const int n = transport.size();
  const int me = transport.rank();
  for (size_t i = 0; i < call.segments.size(); ++i) {
    const Segment& segment = call.segments[i];
    const auto part = [&](int r) {
      const Part& p = call.from[i][r];
      return p.count == 0 ? Bytes() : Bytes(segment.out + p.begin * item, p.count * item);
    };
    const Bytes mine = part(me);
    if (!mine.empty()) std::memmove(mine.data, segment.in, mine.size);
    for (int s = 1; s < n; ++s) {
      const int to = (me + s) % n;
      const int from = (me - s + n) % n;
      HVD_RETURN_IF_ERROR(transport.SendRecv({to, mine, from, part(from), {}}));
    }
  }
  return Status::Ok();
}

}  // namespace

const Collective kAllgather = {
    Kind::kAllgather,
    /*elementwise=*/false, Sizes::kRows,
    /*groups=*/true,       /*fixed_name=*/nullptr, ValidateAllgather, AgreeOnRows, AllRows,
    DivideAllgather,       RunAllgather,
};

}  // namespace hvd
