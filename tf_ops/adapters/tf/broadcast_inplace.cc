// HorovodBroadcastInplace and HorovodBroadcastInplaceResource: give all ranks the root's values of
// some variables.
//
// Each variable is a broadcast of its own, matched by its name among `variable_names` as another
// collective is by its `tensor_name`; all are in flight at once.  The
// values are received where they belong, unless somebody else holds the variable's memory: then
// into new memory, which the variable gets at the end.

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/kernel_def_builder.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow/core/framework/tensor.h"
#include "tf_ops/adapters/tf/call.h"
#include "tf_ops/adapters/tf/compat.h"
#include "tf_ops/adapters/tf/dtype.h"
#include "tf_ops/adapters/tf/node_frames.h"
#include "tf_ops/adapters/tf/status.h"
#include "tf_ops/adapters/tf/wire_name.h"
#include "tf_ops/runtime/c_api.h"

namespace hvd_tf {
namespace {

// One run of the op.  Its broadcasts hold it until the last has ended.
class Run {
 public:
  Run(tf::OpKernelContext* context, tf::AsyncOpKernel::DoneCallback done, size_t variables)
      : context_(context), done_(std::move(done)), left_(variables) {}

  // One broadcast has ended, or could not begin.
  void End(int code, const char* message) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (code != HVD_OK && status_.ok()) status_ = ToTensorFlow(code, message);
      if (--left_ > 0) return;
    }
    if (!status_.ok()) context_->SetStatus(status_);
    done_();
  }

 private:
  tf::OpKernelContext* const context_;
  const tf::AsyncOpKernel::DoneCallback done_;
  std::mutex mutex_;
  size_t left_;          // guarded by mutex_
  absl::Status status_;  // the first error; guarded by mutex_
};

// One variable of it.
struct One {
  tf::core::RefCountPtr<tf::Var> resource;  // null: a ref variable
  tf::Tensor from;
  tf::Tensor to;

  void Store() {
    if (resource == nullptr || to.SharesBufferWith(from)) return;
    tf::mutex_lock lock(*resource->mu());
    *resource->tensor() = to;
  }
};

class BroadcastInplaceKernel final : public tf::AsyncOpKernel {
 public:
  explicit BroadcastInplaceKernel(tf::OpKernelConstruction* c)
      : AsyncOpKernel(c), loops_(c->def().name()) {
    OP_REQUIRES_OK(c, c->GetAttr("root_rank", &root_rank_));
    OP_REQUIRES_OK(c, c->GetAttr("process_set_id", &process_set_));
    OP_REQUIRES_OK(c, c->GetAttr("variable_names", &names_));
    bool ignore_name_scope = false;
    OP_REQUIRES_OK(c, c->GetAttr("ignore_name_scope", &ignore_name_scope));
    for (std::string& name : names_) name = WireName(c->def().name(), name, ignore_name_scope);
    OP_REQUIRES(c, names_.size() == static_cast<size_t>(c->num_inputs()),
                absl::InvalidArgumentError(std::string(name()) + ": " +
                                           std::to_string(names_.size()) + " variable_names for " +
                                           std::to_string(c->num_inputs()) + " variables"));
  }

  void ComputeAsync(tf::OpKernelContext* c, DoneCallback done) override {
    // One more than there are variables: nothing ends before all have begun.
    const auto run = std::make_shared<Run>(c, std::move(done), names_.size() + 1);
    for (size_t i = 0; i < names_.size(); ++i) Begin(c, static_cast<int>(i), run);
    run->End(HVD_OK, "");
  }

 private:
  void Begin(tf::OpKernelContext* c, int i, const std::shared_ptr<Run>& run) const {
    const std::string name = names_[i] + loops_.TextOf(c);
    hvd_request request = {};
    request.name = name.c_str();
    request.kind = HVD_BROADCAST;
    request.process_set = process_set_;
    request.root = root_rank_;
    auto one = std::make_shared<One>();
    if (const absl::Status status = Take(c, i, one.get()); !status.ok()) {
      const std::string text(status.message());
      hvd_refuse(&request, text.c_str());
      return run->End(HVD_INVALID_ARGUMENT, ("broadcast '" + name + "': " + text).c_str());
    }
    std::vector<int64_t> shape;
    for (const auto dim : one->from.shape()) shape.push_back(dim.size);
    const hvd_tensor tensor = {shape.data(), static_cast<int32_t>(shape.size()), one->from.data(),
                               one->to.data()};
    request.dtype = *CoreTypeOf(one->from.dtype());
    request.tensors = &tensor;
    request.num_tensors = 1;
    Call::Begin(c, &request, [one, run](int code, const char* message) mutable {
      if (code == HVD_OK) one->Store();
      one.reset();  // before the op ends, so that nobody else holds the variables then
      run->End(code, message);
    });
  }

  // Where the values are, and where they go.
  absl::Status Take(tf::OpKernelContext* c, int i, One* one) const {
    if (c->input_dtype(i) != tf::DT_RESOURCE) {
      one->from = one->to = c->mutable_input(i, /*lock_held=*/false);
      c->forward_ref_input_to_ref_output(i, i);
      return CheckValue(one->from);
    }
    TF_RETURN_IF_ERROR(LookupResource(c, HandleFromInput(c, i), &one->resource));
    tf::mutex_lock lock(*one->resource->mu());
    const tf::Tensor& value = *one->resource->tensor();
    TF_RETURN_IF_ERROR(CheckValue(value));
    const bool alone = value.RefCountIsOne() && !one->resource->copy_on_read_mode.load();
    one->from = value;
    if (alone) {
      one->to = value;
      return absl::OkStatus();
    }
    return c->allocate_temp(value.dtype(), value.shape(), &one->to);
  }

  static absl::Status CheckValue(const tf::Tensor& value) {
    if (!value.IsInitialized() && value.NumElements() != 0) {
      return absl::InvalidArgumentError("it has no value yet; initialize it on every rank");
    }
    if (!CoreTypeOf(value.dtype())) {
      return absl::InvalidArgumentError("it is of dtype " + tf::DataTypeString(value.dtype()) +
                                        ", which cannot be broadcast");
    }
    return absl::OkStatus();
  }

  const NodeFrames loops_;
  int root_rank_ = 0;
  int process_set_ = 0;
  std::vector<std::string> names_;
};

// Runs while the library loads.
const bool registered = [] {
  for (const bool resources : {false, true}) {
    const char* const op =
        resources ? "HorovodBroadcastInplaceResource" : "HorovodBroadcastInplace";
    tf::OpRegistry::Global()->Register([op, resources](tf::OpRegistrationData* data) {
      tf::OpDefBuilder builder(op);
      if (resources) {
        builder.Input("resources: num_variables * resource");
      } else {
        builder.Attr(std::string("T: ") + kAllTypes)
            .Input("tensor_refs: Ref(num_variables * T)")
            .Output("output_refs: Ref(num_variables * T)");
      }
      return builder.Attr("root_rank: int")
          .Attr("process_set_id: int = 0")
          .Attr("num_variables: int >= 1")
          .Attr("variable_names: list(string)")
          .Attr("ignore_name_scope: bool = false")
          .SetIsStateful()
          .SetShapeFn([](tf::shape_inference::InferenceContext* c) {
            for (int i = 0; i < c->num_outputs(); ++i) c->set_output(i, c->input(i));
            return absl::OkStatus();
          })
          .Finalize(data);
    });
    tf::kernel_factory::OpKernelRegistrar(
        tf::KernelDefBuilder(op).Device("CPU").Build(), "BroadcastInplaceKernel",
        [](tf::OpKernelConstruction* c) -> tf::OpKernel* { return new BroadcastInplaceKernel(c); });
  }
  return true;
}();

}  // namespace
}  // namespace hvd_tf
