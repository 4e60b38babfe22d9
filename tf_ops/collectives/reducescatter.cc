// reducescatter: every rank gets some rows of the reduction of all ranks' tensors.
//
// The rows are divided evenly; where they cannot be, the first ranks get one more.
//
// Algorithm: the first half of the direct allreduce (algorithms/allreduce.h), with the same
// bits: each rank gets all contributions to its own rows and adds them in rank order.  (n-1)/n x
// bytes sent.

#include "tf_ops/base/slices.h"
#include "tf_ops/collectives/algorithms/block.h"
#include "tf_ops/collectives/collective.h"

namespace hvd {
namespace {

Status ValidateReducescatter(const Signature& s, const std::vector<int>& members) {
  HVD_RETURN_IF_ERROR(ValidateRows(s, "scatter"));
  return ValidateReduction(s, members);
}

Status AgreeReducescatter(const Signature& a, int rank_a, const Signature& b, int rank_b) {
  HVD_RETURN_IF_ERROR(AgreeOnShapes(a, rank_a, b, rank_b));
  return AgreeOnReduction(a, rank_a, b, rank_b);
}

// The rows that `member` keeps.
Part RowsFor(int64_t rows, int member, int n) {
  const int64_t begin = SliceBegin(rows, member, n);
  return {begin, SliceBegin(rows, member + 1, n) - begin};
}

std::vector<int64_t> KeptRows(const Signature& s, size_t i, const Around& around) {
  std::vector<int64_t> shape = s.shapes[i];
  shape[0] = RowsFor(shape[0], around.me, around.n).count;
  return shape;
}

void DivideReducescatter(const Signature& s, size_t i, const Around& around, CollectiveCall* call) {
  std::vector<Part>& to = call->to.emplace_back();
  const int64_t row = s.row_count(i);
  for (int r = 0; r < around.n; ++r) {
    const Part rows = RowsFor(s.shapes[i][0], r, around.n);
    to.push_back({rows.begin * row, rows.count * row});
  }
}

Status RunSegment(Transport& transport, const CollectiveCall& call, size_t i, Bytes scratch) {
  const int64_t item = ItemBytes(call.dtype);
  const int n = transport.size();
  const int me = transport.rank();
  const Segment& segment = call.segments[i];
  const std::vector<Part>& to = call.to[i];
  int64_t most = 0;
  for (const Part& part : to) most = std::max(most, part.count);
  const int64_t block = std::min(BlockCount(scratch, n, item), most);
  const size_t stride = RoundUp(block * item);

  std::vector<const void*> contributions(n);
  for (int64_t begin = 0; begin < most; begin += block) {
    // What of rank r's rows this block holds.
    const auto size = [&](int r) {
      return std::clamp<int64_t>(to[r].count - begin, 0, block) * item;
    };
    const auto input = [&](int r) { return segment.in + (to[r].begin + begin) * item; };
    contributions[me] = input(me);
    for (int s = 1; s < n; ++s) {
      const int above = (me + s) % n;
      const int below = (me - s + n) % n;
      std::byte* const theirs = scratch.data + s * stride;
      SendRecvArgs step;
      if (size(above) > 0) step.to = above;
      if (size(above) > 0) step.out = ConstBytes(input(above), size(above));
      if (size(me) > 0) step.from = below;
      if (size(me) > 0) step.in = Bytes(theirs, size(me));
      HVD_RETURN_IF_ERROR(transport.SendRecv(step));
      contributions[below] = theirs;
    }
    if (size(me) == 0) continue;
    ReduceInOrder(call.dtype, call.reduction, contributions.data(), n, segment.out + begin * item,
                  size(me) / item);
  }
  return Status::Ok();
}

Status RunReducescatter(Transport& transport, const CollectiveCall& call, Bytes scratch) {
  for (size_t i = 0; i < call.segments.size(); ++i) {
    HVD_RETURN_IF_ERROR(RunSegment(transport, call, i, scratch));
  }
  return Status::Ok();
}

}  // namespace

const Collective kReducescatter = {
    Kind::kReducescatter,
    /*elementwise=*/false,  Sizes::kNone,
    /*groups=*/true,
    /*fixed_name=*/nullptr, ValidateReducescatter, AgreeReducescatter, KeptRows,
    DivideReducescatter,    RunReducescatter,
};

}  // namespace hvd
