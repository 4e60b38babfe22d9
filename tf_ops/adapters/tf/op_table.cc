#include "tf_ops/adapters/tf/op_table.h"

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/kernel_def_builder.h"
#include "tensorflow/core/framework/op.h"
#include "tf_ops/adapters/tf/collective_kernel.h"
#include "tf_ops/adapters/tf/dtype.h"

namespace hvd_tf {
namespace {

using tf::shape_inference::DimensionHandle;
using tf::shape_inference::InferenceContext;
using tf::shape_inference::ShapeHandle;

constexpr char kOpAttr[] = "reduce_op: int";
constexpr char kPrescaleAttr[] = "prescale_factor: float";
constexpr char kPostscaleAttr[] = "postscale_factor: float";
// To which float and double tensors are cast for the way.
constexpr char kWireAttr[] = "wire_dtype: {'', 'float16', 'bfloat16'} = ''";
constexpr char kNumTensorsAttr[] = "num_tensors: int >= 1";
// Tensors of the same group that another op has, for their dtype.
constexpr char kNumOthersAttr[] = "num_others: int >= 0 = 0";

// Each [d0, d1, ...] -> [?, d1, ...].  A scalar is left to the kernel, which can tell the
// other ranks of it.
absl::Status UnknownRows(InferenceContext* c) {
  for (int i = 0; i < c->num_outputs() && i < c->num_inputs(); ++i) {
    ShapeHandle output = c->UnknownShape();
    if (c->RankKnown(c->input(i)) && c->Rank(c->input(i)) > 0) {
      TF_RETURN_IF_ERROR(c->ReplaceDim(c->input(i), 0, c->UnknownDim(), &output));
    }
    c->set_output(i, output);
  }
  return absl::OkStatus();
}

absl::Status UnchangedShapes(InferenceContext* c) {
  for (int i = 0; i < c->num_outputs(); ++i) c->set_output(i, c->input(i));
  return absl::OkStatus();
}

absl::Status AlltoallShapes(InferenceContext* c) {
  TF_RETURN_IF_ERROR(UnknownRows(c));
  c->set_output(1, c->Vector(InferenceContext::kUnknownDim));
  return absl::OkStatus();
}

// An op with no output.
absl::Status NoOutput(InferenceContext*) { return absl::OkStatus(); }

const std::vector<OpRow>& Rows() {
  static const auto& rows = *new std::vector<OpRow>{
      {"HorovodAllreduce",
       HVD_ALLREDUCE,
       {"tensor: T"},
       {"sum: T"},
       kAllTypes,
       {kOpAttr, kPrescaleAttr, kPostscaleAttr, kWireAttr},
       true,
       UnchangedShapes},
      {"HorovodGroupedAllreduce",
       HVD_ALLREDUCE,
       {"tensors: num_tensors * T"},
       {"sum: num_tensors * T"},
       kAllTypes,
       {kOpAttr, kPrescaleAttr, kPostscaleAttr, kWireAttr, kNumTensorsAttr, kNumOthersAttr},
       true,
       UnchangedShapes},
      {"HorovodAllgather",
       HVD_ALLGATHER,
       {"tensor: T"},
       {"output: T"},
       kAllTypes,
       {},
       false,
       UnknownRows},
      {"HorovodGroupedAllgather",
       HVD_ALLGATHER,
       {"tensors: num_tensors * T"},
       {"outputs: num_tensors * T"},
       kAllTypes,
       {kNumTensorsAttr, kNumOthersAttr},
       false,
       UnknownRows},
      {"HorovodBroadcast",
       HVD_BROADCAST,
       {"tensor: T"},
       {"output: T"},
       kAllTypes,
       {"root_rank: int"},
       true,
       UnchangedShapes},
      {"HorovodAlltoall",
       HVD_ALLTOALL,
       {"tensor: T", "splits: int32"},
       {"output: T", "received_splits: int32"},
       kAllTypes,
       {},
       false,
       AlltoallShapes},
      {"HorovodReducescatter",
       HVD_REDUCESCATTER,
       {"tensor: T"},
       {"output: T"},
       kAllTypes,
       {kOpAttr, kPrescaleAttr, kPostscaleAttr},
       false,
       UnknownRows},
      {"HorovodGroupedReducescatter",
       HVD_REDUCESCATTER,
       {"tensors: num_tensors * T"},
       {"outputs: num_tensors * T"},
       kAllTypes,
       {kOpAttr, kPrescaleAttr, kPostscaleAttr, kNumTensorsAttr, kNumOthersAttr},
       false,
       UnknownRows},
      {"HorovodBarrier", HVD_BARRIER, {}, {}, "", {}, false, NoOutput},
      {"HorovodJoin",
       HVD_JOIN,
       {},
       {"output: int32"},
       "",
       {},
       false,
       tf::shape_inference::ScalarShape},
  };
  return rows;
}

constexpr const char* kDevices[] = {"CPU"};

absl::Status DefineOp(const OpRow& row, tf::OpRegistrationData* data) {
  tf::OpDefBuilder op(row.op);
  if (*row.types != '\0') op.Attr(std::string("T: ") + row.types);
  for (const char* input : row.inputs) op.Input(input);
  for (const char* output : row.outputs) op.Output(output);
  for (const char* attr : row.attrs) op.Attr(attr);
  op.Attr("ignore_name_scope: bool = false")
      .Attr("process_set_id: int = 0")
      .Attr("tensor_name: string = ''")
      .Attr("gradient: bool = false");
  // Stateful, or TensorFlow folds a collective of a constant and merges twins.
  // python/horovod/tensorflow/_compat.py keeps tf.function from ordering them.
  return op.SetIsStateful().SetShapeFn(row.shape).Finalize(data);
}

// Runs while the library loads.
const bool registered = [] {
  for (const OpRow& row : Rows()) {
    tf::OpRegistry::Global()->Register(
        [&row](tf::OpRegistrationData* data) { return DefineOp(row, data); });
    for (const char* device : kDevices) {
      tf::kernel_factory::OpKernelRegistrar(
          tf::KernelDefBuilder(row.op).Device(device).Build(), "CollectiveKernel",
          [](tf::OpKernelConstruction* c) -> tf::OpKernel* { return new CollectiveKernel(c); });
    }
  }
  return true;
}();

}  // namespace

const OpRow& RowFor(const std::string& op) {
  for (const OpRow& row : Rows()) {
    if (op == row.op) return row;
  }
  LOG(FATAL) << "op_table.cc has no row for " << op;
}

}  // namespace hvd_tf
