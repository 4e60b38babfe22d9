// Every collective of this build, and the rules that hold for all of them.

#include <algorithm>
#include <limits>
#include <tuple>

#include "tf_ops/collectives/collective.h"

namespace hvd {
namespace {

const Collective* const kTable[] = {&kAllreduce, &kAllgather, &kBroadcast, &kBarrier};

// The bytes of as many such tensors fit in an int64.
bool SaneShape(const Signature& signature, int64_t tensors) {
  int64_t left = std::numeric_limits<int64_t>::max() /
                 static_cast<int64_t>(ItemBytes(signature.dtype)) / tensors;
  for (int64_t d : signature.shape) {
    if (d < 0) return false;
    if (d > 0) left /= d;
    if (left == 0) return false;
  }
  return true;
}

}  // namespace

const Collective* FindCollective(Kind kind) {
  for (const Collective* row : kTable) {
    if (row->kind == kind) return row;
  }
  return nullptr;
}

Status Validate(const Signature& signature, const std::vector<int>& members, int rank) {
  const Collective* collective = FindCollective(signature.kind);
  if (collective == nullptr) {
    return Status::Unimplemented(StrCat(signature.Title(), ": this collective is not built yet"));
  }
  if (signature.name.empty()) {
    return Status::InvalidArgument(StrCat(Name(signature.kind), ": the name is empty"));
  }
  const int64_t tensors = collective->uneven_rows ? std::max<int64_t>(members.size(), 1) : 1;
  if (!SaneShape(signature, tensors)) {
    return Status::InvalidArgument(
        StrCat(signature.Title(), ": shape ", ShapeText(signature.shape),
               tensors > 1 ? StrCat(" of each of ", tensors, " ranks") : "",
               " does not fit in 2^63 bytes"));
  }
  if (std::find(members.begin(), members.end(), rank) == members.end()) {
    return Status::InvalidArgument(
        StrCat(signature.Title(), ": rank ", rank, " is not in process set ", signature.process_set,
               ", which holds ranks ", Join(members), "; only its ranks may call"));
  }
  return collective->validate(signature, members);
}

Status Agree(const Signature& a, int rank_a, const Signature& b, int rank_b) {
  if (a.kind != b.kind) {
    return Differ(a, "kind", rank_a, Name(a.kind), rank_b, Name(b.kind),
                  "one name must be one collective on all ranks");
  }
  if (a.dtype != b.dtype) {
    return Differ(a, "dtype", rank_a, Name(a.dtype), rank_b, Name(b.dtype),
                  "dtypes must match on all ranks");
  }
  return FindCollective(a.kind)->agree(a, rank_a, b, rank_b);
}

std::vector<int64_t> SizesOf(const Signature& signature) {
  if (!FindCollective(signature.kind)->uneven_rows) return {};
  return {signature.shape[0]};
}

Signature WithSizes(const Signature& signature, const std::vector<int64_t>& sizes) {
  Signature sized = signature;
  if (!sizes.empty()) sized.shape[0] = sizes[0];
  return sized;
}

bool SameButSizes(const Signature& a, const Signature& b) {
  const auto fixed = [](const Signature& s) {
    return std::tie(s.name, s.process_set, s.kind, s.dtype, s.op, s.prescale, s.postscale, s.root,
                    s.gradient);
  };
  if (fixed(a) != fixed(b) || a.shape.size() != b.shape.size()) return false;
  const size_t skip = FindCollective(a.kind)->uneven_rows ? 1 : 0;
  return std::equal(a.shape.begin() + skip, a.shape.end(), b.shape.begin() + skip);
}

std::vector<int64_t> SameShape(const Signature& signature, const std::vector<int64_t>&) {
  return signature.shape;
}

Status Differ(const Signature& a, const std::string& what, int rank_a, const std::string& value_a,
              int rank_b, const std::string& value_b, const std::string& rule) {
  return Status::FailedPrecondition(StrCat(a.Title(), ": rank ", rank_a, " sent ", what, " ",
                                           value_a, ", rank ", rank_b, " sent ", value_b, "; ",
                                           rule));
}

}  // namespace hvd
