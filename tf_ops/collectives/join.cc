// join: a rank that has no more data says so, and waits until all ranks have.
//
// Meanwhile the others' collectives run without it (Response::absent).  All that happens in the
// negotiation; what every rank gets at the end is the number of the rank that joined last.

#include <cstring>

#include "tf_ops/collectives/collective.h"

namespace hvd {
namespace {

Status ValidateJoin(const Signature& s, const std::vector<int>&) {
  if (s.name != kJoinName) {
    return Status::InvalidArgument(StrCat(s.Title(), ": a join is named '", kJoinName, "'"));
  }
  if (s.process_set == 0) return Status::Ok();
  return Status::InvalidArgument(
      StrCat(s.Title(), ": only all ranks together can join, not process set ", s.process_set));
}

std::vector<int64_t> Scalar(const Signature&, size_t, const Around&) { return {}; }

Status RunJoin(Transport&, const CollectiveCall& call, Bytes) {
  const int32_t last = call.root;
  for (const Segment& segment : call.segments) std::memcpy(segment.out, &last, sizeof(last));
  return Status::Ok();
}

}  // namespace

const Collective kJoin = {
    Kind::kJoin,
    /*elementwise=*/false,
    Sizes::kNone,
    /*groups=*/false,
    ValidateJoin,
    [](const Signature&, int, const Signature&, int) { return Status::Ok(); },
    Scalar,
    /*divide=*/nullptr,
    RunJoin,
};

}  // namespace hvd
