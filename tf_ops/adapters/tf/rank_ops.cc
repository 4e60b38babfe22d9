// Ops that tell where this rank stands: HorovodRank, HorovodSize and kin.
//
// They read the value when they run, so a graph built before init() was called again
// gives the new one.

#include <string>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/kernel_def_builder.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tf_ops/adapters/tf/compat.h"
#include "tf_ops/runtime/c_api.h"

namespace hvd_tf {
namespace {

struct RankRow {
  const char* op;
  const char* output;
  bool of_process_set;            // has the attribute process_set_id
  int (*value)(int process_set);  // negative: no answer
};

constexpr RankRow kRows[] = {
    {"HorovodRank", "rank: int32", false, [](int) { return hvd_rank(); }},
    {"HorovodSize", "size: int32", true, hvd_process_set_size},
    {"HorovodLocalRank", "local_rank: int32", false, [](int) { return hvd_local_rank(); }},
    {"HorovodLocalSize", "local_size: int32", false, [](int) { return hvd_local_size(); }},
    {"HorovodProcessSetIncluded", "included: int32", true,
     [](int set) {
       if (hvd_process_set_size(set) < 0) return -1;
       return hvd_process_set_rank(set) >= 0 ? 1 : 0;
     }},
};

class RankKernel final : public tf::OpKernel {
 public:
  explicit RankKernel(tf::OpKernelConstruction* c) : OpKernel(c) {
    for (const RankRow& row : kRows) {
      if (c->def().op() == row.op) row_ = &row;
    }
    if (row_->of_process_set) OP_REQUIRES_OK(c, c->GetAttr("process_set_id", &process_set_));
  }

  void Compute(tf::OpKernelContext* c) override {
    const int value = row_->value(process_set_);
    OP_REQUIRES(c, hvd_is_initialized() != 0,
                absl::FailedPreconditionError(std::string(row_->op) +
                                              ": not initialized: call hvd.init() first"));
    OP_REQUIRES(c, value >= 0,
                absl::InvalidArgumentError(std::string(row_->op) + ": there is no process set " +
                                           std::to_string(process_set_)));
    tf::Tensor* output = nullptr;
    OP_REQUIRES_OK(c, c->allocate_output(0, tf::TensorShape({}), &output));
    output->scalar<int32_t>()() = value;
  }

 private:
  const RankRow* row_ = nullptr;
  int process_set_ = 0;
};

// Runs while the library loads.
const bool registered = [] {
  for (const RankRow& row : kRows) {
    tf::OpRegistry::Global()->Register([&row](tf::OpRegistrationData* data) {
      tf::OpDefBuilder op(row.op);
      op.Output(row.output);
      if (row.of_process_set) op.Attr("process_set_id: int = 0");
      // Stateful, or TensorFlow folds it into a constant.
      return op.SetIsStateful().SetShapeFn(tf::shape_inference::ScalarShape).Finalize(data);
    });
    tf::kernel_factory::OpKernelRegistrar(
        tf::KernelDefBuilder(row.op).Device("CPU").Build(), "RankKernel",
        [](tf::OpKernelConstruction* c) -> tf::OpKernel* { return new RankKernel(c); });
  }
  return true;
}();

}  // namespace
}  // namespace hvd_tf
