#include "tf_ops/adapters/tf/collective_kernel.h"

#include <utility>
#include <vector>

#include "tensorflow/core/framework/tensor.h"
#include "tf_ops/adapters/tf/call.h"
#include "tf_ops/adapters/tf/dtype.h"
#include "tf_ops/adapters/tf/status.h"
#include "tf_ops/adapters/tf/wire_name.h"

namespace hvd_tf {
namespace {

// hvd_request::allocate: output `tensor` of the op.
int Allocate(void* call, int32_t tensor, const int64_t* shape, int32_t ndim, void** output) {
  tf::TensorShape tf_shape;
  for (int32_t i = 0; i < ndim; ++i) {
    if (!tf_shape.AddDimWithStatus(shape[i]).ok()) return HVD_INVALID_ARGUMENT;
  }
  tf::Tensor* allocated = nullptr;
  if (!Call::ContextOf(call)->allocate_output(tensor, tf_shape, &allocated).ok()) {
    return HVD_INTERNAL;
  }
  *output = allocated->data();
  return HVD_OK;
}

}  // namespace

CollectiveKernel::CollectiveKernel(tf::OpKernelConstruction* c)
    : AsyncOpKernel(c),
      row_(RowFor(c->def().op())),
      loops_(c->def().name()),
      num_tensors_(row_.inputs.empty() ? 0 : 1) {
  const auto read = [c](const char* name, auto* value) {
    if (c->HasAttr(name)) OP_REQUIRES_OK(c, c->GetAttr(name, value));
  };
  read("tensor_name", &tensor_name_);
  bool ignore_name_scope = false;
  read("ignore_name_scope", &ignore_name_scope);
  read("gradient", &gradient_);
  read("process_set_id", &process_set_);
  read("reduce_op", &reduce_op_);
  read("wire_dtype", &wire_dtype_);
  read("root_rank", &root_rank_);
  read("prescale_factor", &prescale_);
  read("postscale_factor", &postscale_);
  read("num_tensors", &num_tensors_);
  read("num_others", &num_others_);
  grouped_ = c->HasAttr("num_tensors");
  name_ = WireName(c->def().name(), tensor_name_, ignore_name_scope);
}

void CollectiveKernel::ComputeAsync(tf::OpKernelContext* c, DoneCallback done) {
  std::string name = name_;
  // An eager op runs on the thread that called it, and its node is named like its type.  The name
  // is taken in any case, which tells the caller that the kernel has run.
  if (name_view() == row_.op) {
    const char* const next = hvd_take_next_name();
    if (tensor_name_.empty() && *next != '\0') name = next;
  }
  name += loops_.TextOf(c);
  hvd_request request = {};
  request.name = name.c_str();
  request.kind = row_.kind;
  request.process_set = process_set_;
  request.reduce_op = reduce_op_;
  if (!wire_dtype_.empty()) {
    request.wire_dtype = wire_dtype_ == "float16" ? HVD_FLOAT16 : HVD_BFLOAT16;
  }
  request.prescale = prescale_;
  request.postscale = postscale_;
  request.root = root_rank_;
  request.gradient = gradient_;
  request.grouped = grouped_;
  request.num_others = num_others_;
  request.dtype = HVD_UINT8;

  const auto refuse = [&](const absl::Status& status) {
    hvd_refuse(&request, std::string(status.message()).c_str());
    return status;
  };
  const int outputs = row_.kind == HVD_JOIN ? 1 : num_tensors_;
  std::vector<std::vector<int64_t>> shapes(outputs);
  std::vector<hvd_tensor> tensors(outputs);
  for (int i = 0; i < num_tensors_; ++i) {
    const tf::Tensor& input = c->input(i);
    for (const auto dim : input.shape()) shapes[i].push_back(dim.size);
    request.dtype = *CoreTypeOf(input.dtype());  // the op admits no other
    tensors[i].input = input.data();
    if (row_.output_like_input) {
      tf::Tensor* output = nullptr;
      const absl::Status status =
          c->forward_input_or_allocate_output({i}, i, input.shape(), &output);
      OP_REQUIRES_OK_ASYNC(c, status.ok() ? status : refuse(status), done);
      tensors[i].output = output->data();
    }
  }
  if (row_.kind == HVD_JOIN) request.dtype = HVD_INT32;
  if (!row_.output_like_input) request.allocate = &Allocate;
  for (int i = 0; i < outputs; ++i) {
    tensors[i].shape = shapes[i].data();
    tensors[i].ndim = static_cast<int32_t>(shapes[i].size());
  }
  request.tensors = tensors.data();
  request.num_tensors = outputs;
  if (row_.kind == HVD_ALLTOALL) {
    const absl::Status status = TakeSplits(c, &request);
    OP_REQUIRES_OK_ASYNC(c, status.ok() ? status : refuse(status), done);
  }
  Call::Begin(c, &request, [c, done = std::move(done)](int code, const char* message) {
    if (code != HVD_OK) c->SetStatus(ToTensorFlow(code, message));
    done();
  });
}

absl::Status CollectiveKernel::TakeSplits(tf::OpKernelContext* c, hvd_request* request) const {
  const tf::Tensor& splits = c->input(1);
  if (splits.dims() != 1) {
    return absl::InvalidArgumentError("alltoall '" + std::string(request->name) +
                                      "': splits have shape " + splits.shape().DebugString() +
                                      "; they must be a vector, one number for each rank");
  }
  request->splits = splits.flat<int32_t>().data();
  request->num_splits = static_cast<int32_t>(splits.NumElements());
  const int size = hvd_process_set_size(process_set_);
  if (size < 0) return absl::OkStatus();  // the core says why
  tf::Tensor* received = nullptr;
  const absl::Status status = c->allocate_output(1, tf::TensorShape({size}), &received);
  if (status.ok()) request->received_splits = received->flat<int32_t>().data();
  return status;
}

}  // namespace hvd_tf
