// The rules that several collectives share.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tf_ops/collectives/collective.h"

namespace hvd {
namespace {

// "shape", or "shape of tensor 2" in a group.
std::string ShapeOf(const Signature& s, size_t i) {
  return s.grouped ? StrCat("shape of tensor ", i) : "shape";
}

}  // namespace

Status Differ(const Signature& a, const std::string& what, int rank_a, const std::string& value_a,
              int rank_b, const std::string& value_b, const std::string& rule) {
  return Status::FailedPrecondition(StrCat(a.Title(), ": rank ", rank_a, " sent ", what, " ",
                                           value_a, ", rank ", rank_b, " sent ", value_b, "; ",
                                           rule));
}

bool CanBeCut(const Signature& s) {
  return FindCollective(s.kind)->elementwise && s.op != ReduceOp::kAdasum;
}

std::vector<int64_t> SameShape(const Signature& signature, size_t i, const Around&) {
  return signature.shapes[i];
}

Status ValidateAnswered(const Signature& s, const std::vector<int>&) {
  const char* const name = FindCollective(s.kind)->fixed_name;
  if (s.name != name) {
    return Status::InvalidArgument(StrCat(s.Title(), ": its name must be '", name, "'"));
  }
  if (s.dtype != DType::kInt32 || s.grouped || !s.shape().empty()) {
    return Status::InvalidArgument(StrCat(s.Title(),
                                          ": its tensor must be an int32 without dimensions, not ",
                                          Name(s.dtype), " of shape ", ShapeText(s.shape())));
  }
  if (s.process_set == 0) return Status::Ok();
  return Status::InvalidArgument(
      StrCat(s.Title(), ": only all ranks together can do this, not process set ", s.process_set));
}

std::vector<int64_t> AnswerShape(const Signature&, size_t, const Around&) { return {}; }

Status RunAnswer(Transport&, const CollectiveCall& call, Bytes) {
  const int32_t answer = call.root;
  for (const Segment& segment : call.segments) std::memcpy(segment.out, &answer, sizeof(answer));
  return Status::Ok();
}

Status AgreeOnShapes(const Signature& a, int rank_a, const Signature& b, int rank_b) {
  for (size_t i = 0; i < a.shapes.size(); ++i) {
    if (a.shapes[i] == b.shapes[i]) continue;
    return Differ(a, ShapeOf(a, i), rank_a, ShapeText(a.shapes[i]), rank_b, ShapeText(b.shapes[i]),
                  "shapes must match on all ranks");
  }
  return Status::Ok();
}

Status AgreeOnRows(const Signature& a, int rank_a, const Signature& b, int rank_b) {
  for (size_t i = 0; i < a.shapes.size(); ++i) {
    const std::vector<int64_t>& x = a.shapes[i];
    const std::vector<int64_t>& y = b.shapes[i];
    if (x.size() == y.size() && std::equal(x.begin() + !x.empty(), x.end(), y.begin() + !y.empty()))
      continue;
    return Differ(a, ShapeOf(a, i), rank_a, ShapeText(x), rank_b, ShapeText(y),
                  "all dimensions but the first must match on all ranks");
  }
  return Status::Ok();
}

Status ValidateRows(const Signature& s, const std::string& what) {
  for (size_t i = 0; i < s.shapes.size(); ++i) {
    if (!s.shapes[i].empty()) continue;
    return Status::InvalidArgument(
        StrCat(s.Title(), ": ", s.grouped ? StrCat("tensor ", i, " is ") : "", "a scalar",
               s.grouped ? " and" : "", " has no rows to ", what, "; reshape it to [1]"));
  }
  return Status::Ok();
}

Status ValidateWireDtype(const Signature& s) {
  if (!s.wire_dtype) return Status::Ok();
  const DType wire = *s.wire_dtype;
  if (s.kind != Kind::kAllreduce || s.op == ReduceOp::kAdasum) {
    return Status::InvalidArgument(StrCat(s.Title(),
                                          ": only an allreduce can have a wire dtype, and not with "
                                          "Adasum; cast the tensor to ",
                                          Name(wire)));
  }
  if (IsFloating(s.dtype) && IsFloating(wire) && ItemBytes(wire) == 2 && ItemBytes(s.dtype) > 2) {
    return Status::Ok();
  }
  return Status::InvalidArgument(StrCat(s.Title(),
                                        ": the wire dtype of float32 and float64 can be float16 or "
                                        "bfloat16, not ",
                                        Name(wire), " for ", Name(s.dtype)));
}

Status ValidateReduction(const Signature& s, const std::vector<int>& members) {
  if (s.op == ReduceOp::kAdasum) {
    const size_t n = members.size();
    if (s.kind != Kind::kAllreduce) {
      return Status::InvalidArgument(
          StrCat(s.Title(), ": Adasum looks at whole tensors, so only an allreduce can have it"));
    }
    if (!IsFloating(s.dtype)) {
      return Status::InvalidArgument(
          StrCat(s.Title(), ": Adasum is for floating types, not ", Name(s.dtype), "; use Sum"));
    }
    if ((n & (n - 1)) != 0) {
      return Status::InvalidArgument(
          StrCat(s.Title(), ": Adasum needs 1, 2, 4, 8 ... ranks, not ", n, "; use Average"));
    }
  }
  if (s.dtype == DType::kBool && s.op == ReduceOp::kAverage) {
    return Status::InvalidArgument(
        StrCat(s.Title(), ": bool has no Average; use Sum (or), Product (and), Min or Max"));
  }
  if (std::isnan(s.prescale) || std::isnan(s.postscale)) {
    return Status::InvalidArgument(StrCat(s.Title(), ": prescale_factor is ", s.prescale,
                                          " and postscale_factor ", s.postscale,
                                          "; neither may be NaN"));
  }
  if (s.dtype == DType::kBool && (s.prescale != 1.0 || s.postscale != 1.0)) {
    return Status::InvalidArgument(StrCat(s.Title(),
                                          ": bool has no factors, but prescale_factor is ",
                                          s.prescale, " and postscale_factor ", s.postscale));
  }
  return Status::Ok();
}

Status AgreeOnReduction(const Signature& a, int rank_a, const Signature& b, int rank_b) {
  if (a.op != b.op) {
    return Differ(a, "op", rank_a, Name(a.op), rank_b, Name(b.op),
                  "the reduction must match on all ranks");
  }
  if (a.sent_as() != b.sent_as()) {
    return Differ(a, "elements as", rank_a, Name(a.sent_as()), rank_b, Name(b.sent_as()),
                  "the compression must match on all ranks");
  }
  if (a.prescale != b.prescale) {
    return Differ(a, "prescale_factor", rank_a, StrCat(a.prescale), rank_b, StrCat(b.prescale),
                  "factors must match on all ranks");
  }
  if (a.postscale != b.postscale) {
    return Differ(a, "postscale_factor", rank_a, StrCat(a.postscale), rank_b, StrCat(b.postscale),
                  "factors must match on all ranks");
  }
  return Status::Ok();
}

}  // namespace hvd
