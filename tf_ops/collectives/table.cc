// Every collective of this build, and what follows from its row.

#include <algorithm>
#include <limits>
#include <tuple>

#include "tf_ops/collectives/collective.h"

namespace hvd {
namespace {

// By kind.
constexpr const Collective* kTable[kNumKinds] = {
    &kAllreduce, &kAllgather, &kBroadcast,     &kAlltoall,         &kReducescatter,
    &kBarrier,   &kJoin,      &kAddProcessSet, &kRemoveProcessSet,
};

// The bytes of as many such tensors fit in an int64.
bool SaneShape(const std::vector<int64_t>& shape, DType dtype, int64_t tensors) {
  int64_t left =
      std::numeric_limits<int64_t>::max() / static_cast<int64_t>(ItemBytes(dtype)) / tensors;
  for (int64_t d : shape) {
    if (d < 0) return false;
    if (d > 0) left /= d;
    if (left == 0) return false;
  }
  return true;
}

Status ValidateShapes(const Signature& s, const Collective& collective, size_t ranks) {
  const size_t alone = s.kind == Kind::kBarrier ? 0 : 1;
  if (s.grouped ? !collective.groups || s.shapes.empty() : s.shapes.size() != alone) {
    return Status::InvalidArgument(
        StrCat(s.Title(), ": ", s.shapes.size(), " tensors cannot be one request"));
  }
  if (s.others < 0 || (s.others > 0 && !s.grouped)) {
    return Status::InvalidArgument(
        StrCat(s.Title(), ": ", s.others, " other tensors of its group"));
  }
  // What comes out may be as large as what all ranks put in.
  int64_t tensors = s.shapes.size();
  if (collective.sizes != Sizes::kNone) tensors *= std::max<int64_t>(ranks, 1);
  for (const std::vector<int64_t>& shape : s.shapes) {
    if (SaneShape(shape, s.dtype, tensors)) continue;
    return Status::InvalidArgument(
        StrCat(s.Title(), ": shape ", ShapeText(shape),
               s.grouped ? StrCat(" of each of ", s.shapes.size(), " tensors") : "",
               collective.sizes != Sizes::kNone ? StrCat(" of each of ", ranks, " ranks") : "",
               " does not fit in 2^63 bytes"));
  }
  return Status::Ok();
}

}  // namespace

std::string Signature::Title() const {
  const char* const fixed = FindCollective(kind)->fixed_name;
  if (fixed != nullptr && name == fixed) return Name(kind);
  return StrCat(grouped ? "grouped_" : "", Name(kind), " '", name, "'");
}

const Collective* FindCollective(Kind kind) { return kTable[static_cast<size_t>(kind)]; }

Status Validate(const Signature& signature, const std::vector<int>& members, int rank) {
  const Collective& collective = *FindCollective(signature.kind);
  if (signature.name.empty()) {
    return Status::InvalidArgument(StrCat(Name(signature.kind), ": the name is empty"));
  }
  HVD_RETURN_IF_ERROR(ValidateShapes(signature, collective, members.size()));
  if (std::find(members.begin(), members.end(), rank) == members.end()) {
    return Status::InvalidArgument(
        StrCat(signature.Title(), ": rank ", rank, " is not in process set ", signature.process_set,
               ", which holds ranks ", Join(members), "; only its ranks may call"));
  }
  HVD_RETURN_IF_ERROR(ValidateWireDtype(signature));
  return collective.validate(signature, members);
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
  const auto tensors = [](const Signature& s) {
    if (!s.grouped) return std::string("no group");
    if (s.others == 0) return StrCat("a group of ", s.shapes.size());
    return StrCat(s.shapes.size(), " ", Name(s.dtype), " of a group of ",
                  s.shapes.size() + s.others);
  };
  if (a.grouped != b.grouped || a.shapes.size() != b.shapes.size() || a.others != b.others) {
    return Differ(a, "tensors:", rank_a, tensors(a), rank_b, tensors(b),
                  "a group must hold the same tensors on all ranks");
  }
  return FindCollective(a.kind)->agree(a, rank_a, b, rank_b);
}

Status Complete(Signature* s, int n) {
  const bool complete = s->kind != Kind::kAlltoall || !s->splits.empty();
  if (complete || s->shapes.size() != 1) return Status::Ok();
  HVD_RETURN_IF_ERROR(ValidateRows(*s, "send"));
  const int64_t rows = s->shape()[0];
  if (rows % n != 0) {
    return Status::InvalidArgument(StrCat(s->Title(), ": ", rows, " rows cannot be divided evenly ",
                                          "among ", n, " ranks; give splits"));
  }
  s->splits.assign(n, rows / n);
  return Status::Ok();
}

std::vector<int64_t> SizesOf(const Signature& s) {
  switch (FindCollective(s.kind)->sizes) {
    case Sizes::kNone:
      return {};
    case Sizes::kSplits:
      return s.splits;
    case Sizes::kRows:
      break;
  }
  std::vector<int64_t> rows;
  for (const std::vector<int64_t>& shape : s.shapes) rows.push_back(shape[0]);
  return rows;
}

size_t SizeCount(const Signature& s, int n) {
  switch (FindCollective(s.kind)->sizes) {
    case Sizes::kNone:
      return 0;
    case Sizes::kRows:
      return s.shapes.size();
    case Sizes::kSplits:
      return n;
  }
  return 0;
}

Signature WithSizes(const Signature& signature, const std::vector<int64_t>& sizes) {
  Signature sized = signature;
  switch (FindCollective(signature.kind)->sizes) {
    case Sizes::kNone:
      break;
    case Sizes::kRows:
      for (size_t i = 0; i < sizes.size(); ++i) sized.shapes[i][0] = sizes[i];
      break;
    case Sizes::kSplits: {
      sized.splits = sizes;
      // Unsigned: what came by wire may overflow, and is checked afterwards.
      uint64_t rows = 0;
      for (int64_t n : sizes) rows += static_cast<uint64_t>(n);
      sized.shapes[0][0] = static_cast<int64_t>(rows);
    }
  }
  return sized;
}

bool SameButSizes(const Signature& a, const Signature& b) {
  const auto fixed = [](const Signature& s) {
    return std::tie(s.name, s.process_set, s.kind, s.dtype, s.wire_dtype, s.op, s.prescale,
                    s.postscale, s.root, s.gradient, s.grouped, s.others, s.ranks);
  };
  if (fixed(a) != fixed(b)) return false;
  const size_t skip = FindCollective(a.kind)->sizes == Sizes::kNone ? 0 : 1;
  return std::equal(a.shapes.begin(), a.shapes.end(), b.shapes.begin(), b.shapes.end(),
                    [skip](const auto& x, const auto& y) {
                      return x.size() == y.size() &&
                             std::equal(x.begin() + skip, x.end(), y.begin() + skip);
                    });
}

}  // namespace hvd
