// allreduce: every rank gets the reduction of all ranks' tensors.

#include "tf_ops/collectives/algorithms/allreduce.h"

#include "tf_ops/collectives/algorithms/adasum.h"
#include "tf_ops/collectives/collective.h"
#include "tf_ops/collectives/select.h"

namespace hvd {
namespace {

Status ValidateAllreduce(const Signature& s, const std::vector<int>& members) {
  return ValidateReduction(s, members);
}

Status AgreeAllreduce(const Signature& a, int rank_a, const Signature& b, int rank_b) {
  HVD_RETURN_IF_ERROR(AgreeOnShapes(a, rank_a, b, rank_b));
  return AgreeOnReduction(a, rank_a, b, rank_b);
}

Status RunAllreduce(Transport& transport, const CollectiveCall& call, Bytes scratch) {
  if (call.reduction.op == ReduceOp::kAdasum) return AllreduceAdasum(transport, call);
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

const Collective kAllreduce = {
    Kind::kAllreduce,
    /*elementwise=*/true, Sizes::kNone,
    /*groups=*/true,      /*fixed_name=*/nullptr, ValidateAllreduce, AgreeAllreduce, SameShape,
    /*divide=*/nullptr,   RunAllreduce,
};

}  // namespace hvd
