// alltoall: every rank has rows for every other, and gets those that the others have for it,
// in rank order.
//
// Algorithm: n-1 steps of pairwise exchange, as in an allgather; a rank sends (n-1)/n of its
// bytes when the splits are equal, straight from the input and into the output.  Rows for a rank
// that has joined go nowhere.

#include <cstring>
#include <limits>

#include "tf_ops/collectives/collective.h"

namespace hvd {
namespace {

// What the receiver is told of as an int32.
constexpr int64_t kMostRows = std::numeric_limits<int32_t>::max();

Status ValidateAlltoall(const Signature& s, const std::vector<int>& members) {
  HVD_RETURN_IF_ERROR(ValidateRows(s, "send"));
  const auto wrong = [&](const std::string& why) {
    return Status::InvalidArgument(StrCat(s.Title(), ": splits ", ShapeText(s.splits), why));
  };
  if (s.splits.size() != members.size()) {
    return wrong(StrCat(" are ", s.splits.size(), " numbers, but process set ", s.process_set,
                        " has ", members.size(), " ranks; give one number for each"));
  }
  int64_t left = s.shape()[0];
  for (int64_t rows : s.splits) {
    if (rows < 0) return wrong(StrCat(" hold ", rows, "; none may be negative"));
    if (rows > kMostRows) {
      return wrong(StrCat(" hold ", rows, "; at most ", kMostRows, " rows can go to one rank"));
    }
    left -= rows;
    if (left < 0) break;
  }
  if (left == 0) return Status::Ok();
  return wrong(StrCat(left < 0 ? " are more" : " are less", " than the ", s.shape()[0],
                      " rows of the tensor; they must add up to them"));
}

// The rows that member `from` has for member `to`.
int64_t RowsOf(const Around& around, int from, int to) {
  return around.sizes[static_cast<size_t>(from) * around.n + to];
}

std::vector<int64_t> ReceivedRows(const Signature& s, size_t i, const Around& around) {
  std::vector<int64_t> shape = s.shapes[i];
  shape[0] = 0;
  for (int r = 0; r < around.n; ++r) shape[0] += RowsOf(around, r, around.me);
  return shape;
}

void DivideAlltoall(const Signature& s, size_t i, const Around& around, CollectiveCall* call) {
  std::vector<Part>& to = call->to.emplace_back();
  std::vector<Part>& from = call->from.emplace_back();
  const int64_t row = s.row_count(i);
  Part out, in;
  for (int r = 0; r < around.n; ++r) {
    out.count = RowsOf(around, around.me, r) * row;
    in.count = RowsOf(around, r, around.me) * row;
    to.push_back(out);
    from.push_back(in);
    out.begin += out.count;
    in.begin += in.count;
  }
}

Status RunAlltoall(Transport& transport, const CollectiveCall& call, Bytes) {
  const int64_t item = ItemBytes(call.dtype);
  const int n = transport.size();
  const int me = transport.rank();
  const Segment& segment = call.segments[0];
  const auto sent = [&](int r) {
    const Part& p = call.to[0][r];
    return p.count == 0 ? ConstBytes() : ConstBytes(segment.in + p.begin * item, p.count * item);
  };
  const auto received = [&](int r) {
    const Part& p = call.from[0][r];
    return p.count == 0 ? Bytes() : Bytes(segment.out + p.begin * item, p.count * item);
  };
  const Bytes own = received(me);
  if (!own.empty()) std::memcpy(own.data, sent(me).data, own.size);
  for (int s = 1; s < n; ++s) {
    const int to = (me + s) % n;
    const int from = (me - s + n) % n;
    HVD_RETURN_IF_ERROR(transport.SendRecv({to, sent(to), from, received(from), {}}));
  }
  return Status::Ok();
}

}  // namespace

const Collective kAlltoall = {
    Kind::kAlltoall,
    /*elementwise=*/false, Sizes::kSplits,
    /*groups=*/false,      /*fixed_name=*/nullptr, ValidateAlltoall, AgreeOnRows,
    ReceivedRows,          DivideAlltoall,         RunAlltoall,
};

}  // namespace hvd
