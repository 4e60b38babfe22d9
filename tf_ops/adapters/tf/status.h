// A code of the C API as a TensorFlow error: the one table.

#ifndef TF_OPS_ADAPTERS_TF_STATUS_H_
#define TF_OPS_ADAPTERS_TF_STATUS_H_

#include <string>

#include "tf_ops/adapters/tf/compat.h"

namespace hvd_tf {

// REQUIRES: code is not HVD_OK.
absl::Status ToTensorFlow(int code, const std::string& message);

}  // namespace hvd_tf

#endif  // TF_OPS_ADAPTERS_TF_STATUS_H_
