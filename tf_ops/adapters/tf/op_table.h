// Every collective op that TensorFlow sees, one row each (op_table.cc).

#ifndef TF_OPS_ADAPTERS_TF_OP_TABLE_H_
#define TF_OPS_ADAPTERS_TF_OP_TABLE_H_

#include <string>
#include <vector>

#include "tensorflow/core/framework/shape_inference.h"
#include "tf_ops/adapters/tf/compat.h"
#include "tf_ops/runtime/c_api.h"

namespace hvd_tf {

struct OpRow {
  const char* op;  // graph name; Python sees its snake_case
  hvd_kind kind;
  // Names as saved graphs hold them.  The first input and output are the tensor, or as many
  // tensors as the op's attribute num_tensors says.
  std::vector<const char*> inputs;
  std::vector<const char*> outputs;
  const char* types;               // of T; empty: there is no input
  std::vector<const char*> attrs;  // beside T and those that all have
  bool output_like_input;          // its shape is known before the ranks have met
  absl::Status (*shape)(tf::shape_inference::InferenceContext*);
};

const OpRow& RowFor(const std::string& op);

}  // namespace hvd_tf

#endif  // TF_OPS_ADAPTERS_TF_OP_TABLE_H_
