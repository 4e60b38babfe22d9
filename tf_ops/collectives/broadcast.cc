// broadcast: every rank gets the root's tensor.
//
// Algorithm: a binomial tree over the ranks counted from the root.  Rank v (so counted)
// receives from v minus its lowest set bit, then sends to v + 1, v + 2, v + 4 ... below
// that bit: log2(n) steps deep, each rank receives once.

#include <algorithm>
#include <cstring>

#include "tf_ops/collectives/collective.h"

namespace hvd {
namespace {

Status ValidateBroadcast(const Signature& s, const std::vector<int>& members) {
  if (std::find(members.begin(), members.end(), s.root) != members.end()) return Status::Ok();
  return Status::InvalidArgument(StrCat(s.Title(), ": root_rank ", s.root,
                                        " is not in process set ", s.process_set,
                                        ", which holds ranks ", Join(members)));
}

Status AgreeBroadcast(const Signature& a, int rank_a, const Signature& b, int rank_b) {
  if (a.root != b.root) {
    return Differ(a, "root_rank", rank_a, StrCat(a.root), rank_b, StrCat(b.root),
                  "the root must match on all ranks");
  }
  return AgreeOnShapes(a, rank_a, b, rank_b);
}

Status RunBroadcast(Transport& transport, const CollectiveCall& call, Bytes) {
  const Segment& segment = call.segments[0];
  const Bytes tensor(segment.out, segment.count * ItemBytes(call.dtype));
  const int n = transport.size();
  const int v = (transport.rank() - call.root + n) % n;
  const auto rank_of = [&](int counted) { return (counted + call.root) % n; };

  if (v == 0 && !tensor.empty() && segment.in != segment.out) {
    std::memcpy(tensor.data, segment.in, tensor.size);
  }
  int bit = 1;
  while (bit < n && (v & bit) == 0) bit <<= 1;
  if (v != 0) {
    HVD_RETURN_IF_ERROR(transport.SendRecv({-1, {}, rank_of(v - bit), tensor, {}}));
  }
  for (bit >>= 1; bit > 0; bit >>= 1) {
    if (v + bit >= n) continue;
    HVD_RETURN_IF_ERROR(transport.SendRecv({rank_of(v + bit), tensor, -1, {}, {}}));
  }
  return Status::Ok();
}

}  // namespace

const Collective kBroadcast = {
    Kind::kBroadcast,
    /*elementwise=*/false, Sizes::kNone,
    /*groups=*/false,      /*fixed_name=*/nullptr, ValidateBroadcast, AgreeBroadcast, SameShape,
    /*divide=*/nullptr,    RunBroadcast,
};

}  // namespace hvd
