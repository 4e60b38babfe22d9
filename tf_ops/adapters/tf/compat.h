// What differs between the TensorFlow versions that one source must build for.
//
// 2.15 to 2.21 agree on absl::Status under both names; `tensorflow::Status::OK()` and
// tensorflow::errors are gone or deprecated in the newer ones, so neither is used.

#ifndef TF_OPS_ADAPTERS_TF_COMPAT_H_
#define TF_OPS_ADAPTERS_TF_COMPAT_H_

#include "absl/status/status.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace hvd_tf {

namespace tf = ::tensorflow;

}  // namespace hvd_tf

#endif  // TF_OPS_ADAPTERS_TF_COMPAT_H_
