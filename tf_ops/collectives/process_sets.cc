// Process sets that come and go while the job runs: all ranks add or remove one together.
//
// The control threads change their tables where the response stands in the stream
// (transport/process_sets.h).  The answer is the set's number.

#include <algorithm>
#include <functional>

#include "tf_ops/collectives/collective.h"

namespace hvd {
namespace {

Status ValidateAdd(const Signature& s, const std::vector<int>& members) {
  HVD_RETURN_IF_ERROR(ValidateAnswered(s, members));
  if (s.ranks.empty() || std::adjacent_find(s.ranks.begin(), s.ranks.end(),
                                            std::greater_equal<int>()) != s.ranks.end()) {
    return Status::InvalidArgument(StrCat(s.Title(), ": ranks ", RanksText(s.ranks),
                                          " must be one or more, ascending, each once"));
  }
  for (int rank : s.ranks) {
    if (std::binary_search(members.begin(), members.end(), rank)) continue;
    return Status::InvalidArgument(StrCat(s.Title(), ": ", RanksText(s.ranks),
                                          " cannot be a set: there are ", members.size(),
                                          " ranks, and no rank ", rank));
  }
  return Status::Ok();
}

Status AgreeOnRanks(const Signature& a, int rank_a, const Signature& b, int rank_b) {
  if (a.ranks == b.ranks) return Status::Ok();
  return Differ(a, "the set of", rank_a, RanksText(a.ranks), rank_b, RanksText(b.ranks),
                "all ranks must add the same process sets in the same order");
}

Status ValidateRemove(const Signature& s, const std::vector<int>& members) {
  HVD_RETURN_IF_ERROR(ValidateAnswered(s, members));
  if (s.root > 0) return Status::Ok();
  return Status::InvalidArgument(
      StrCat(s.Title(), ": process set ", s.root,
             s.root == 0 ? " is that of all ranks, which stays" : " does not exist"));
}

Status AgreeOnId(const Signature& a, int rank_a, const Signature& b, int rank_b) {
  if (a.root == b.root) return Status::Ok();
  return Differ(a, "process set", rank_a, StrCat(a.root), rank_b, StrCat(b.root),
                "all ranks must remove the same process sets in the same order");
}

}  // namespace

const Collective kAddProcessSet = {
    Kind::kAddProcessSet,
    /*elementwise=*/false, Sizes::kNone,
    /*groups=*/false,      kProcessSetsName, ValidateAdd, AgreeOnRanks, AnswerShape,
    /*divide=*/nullptr,    RunAnswer,
};

const Collective kRemoveProcessSet = {
    Kind::kRemoveProcessSet,
    /*elementwise=*/false,   Sizes::kNone,
    /*groups=*/false,        kProcessSetsName, ValidateRemove, AgreeOnId, AnswerShape,
    /*divide=*/nullptr,      RunAnswer,
};

}  // namespace hvd
