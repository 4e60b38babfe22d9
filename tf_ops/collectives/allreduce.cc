// allreduce: every rank gets the reduction of all ranks' tensors.

#include "tf_ops/collectives/algorithms/allreduce.h"

#include <cmath>

#include "tf_ops/collectives/collective.h"
#include "tf_ops/collectives/select.h"

namespace hvd {
namespace {

Status ValidateAllreduce(const Signature& s, const std::vector<int>&) {
  if (s.op == ReduceOp::kAdasum) {
    return Status::Unimplemented(StrCat(s.Title(), ": Adasum is not built yet; use Average"));
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

Status AgreeAllreduce(const Signature& a, int rank_a, const Signature& b, int rank_b) {
  if (a.shape != b.shape) {
    return Differ(a, "shape", rank_a, ShapeText(a.shape), rank_b, ShapeText(b.shape),
                  "shapes must match on all ranks");
  }
  if (a.op != b.op) {
    return Differ(a, "op", rank_a, Name(a.op), rank_b, Name(b.op),
                  "the reduction must match on all ranks");
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

Status RunAllreduce(Transport& transport, const CollectiveCall& call, Bytes scratch) {
  const size_t bytes = call.TotalCount() * ItemBytes(call.dtype);
  switch (SelectAllreduce(transport.size(), bytes)) {
    case AllreduceAlgorithm::kExchange:
      return AllreduceExchange(transport, call, scratch);
    case AllreduceAlgorithm::kDirect:
      return AllreduceDirect(transport, call, scratch);
  }
  return Status::Internal("select.cc chose no algorithm");
}

}  // namespace

const Collective kAllreduce = {Kind::kAllreduce,  /*elementwise=*/true, /*uneven_rows=*/false,
                               ValidateAllreduce, AgreeAllreduce,       SameShape,
                               RunAllreduce};

}  // namespace hvd
