// TensorFlow's element types as the core's.

#ifndef TF_OPS_ADAPTERS_TF_DTYPE_H_
#define TF_OPS_ADAPTERS_TF_DTYPE_H_

#include <optional>

#include "tensorflow/core/framework/types.pb.h"
#include "tf_ops/adapters/tf/compat.h"
#include "tf_ops/runtime/c_api.h"

namespace hvd_tf {

// As an op's attribute lists them.
inline constexpr char kAllTypes[] =
    "{bool, uint8, int8, uint16, int16, int32, int64, half, bfloat16, float, double}";

// nullopt: the core does not know it.
inline std::optional<hvd_dtype> CoreTypeOf(tf::DataType dtype) {
  switch (dtype) {
    case tf::DT_BOOL:
      return HVD_BOOL;
    case tf::DT_UINT8:
      return HVD_UINT8;
    case tf::DT_INT8:
      return HVD_INT8;
    case tf::DT_UINT16:
      return HVD_UINT16;
    case tf::DT_INT16:
      return HVD_INT16;
    case tf::DT_INT32:
      return HVD_INT32;
    case tf::DT_INT64:
      return HVD_INT64;
    case tf::DT_HALF:
      return HVD_FLOAT16;
    case tf::DT_BFLOAT16:
      return HVD_BFLOAT16;
    case tf::DT_FLOAT:
      return HVD_FLOAT32;
    case tf::DT_DOUBLE:
      return HVD_FLOAT64;
    default:
      return std::nullopt;
  }
}

}  // namespace hvd_tf

#endif  // TF_OPS_ADAPTERS_TF_DTYPE_H_
