// The vocabulary of a collective: kind, element type, reduction.
//
// The numbers are part of the C API, of the wire format, and (reduction) of graphs
// saved by programs: never renumber.

#ifndef TF_OPS_BASE_TYPES_H_
#define TF_OPS_BASE_TYPES_H_

#include <cstddef>
#include <cstdint>

namespace hvd {

enum class Kind : uint8_t {
  kAllreduce = 0,
  kAllgather = 1,
  kBroadcast = 2,
  kAlltoall = 3,
  kReducescatter = 4,
  kBarrier = 5,
  kJoin = 6,
  kAddProcessSet = 7,
  kRemoveProcessSet = 8,
};
inline constexpr int kNumKinds = 9;

enum class DType : uint8_t {
  kBool = 0,
  kUint8 = 1,
  kInt8 = 2,
  kUint16 = 3,
  kInt16 = 4,
  kInt32 = 5,
  kInt64 = 6,
  kFloat16 = 7,
  kBfloat16 = 8,
  kFloat32 = 9,
  kFloat64 = 10,
};
inline constexpr int kNumDTypes = 11;

enum class ReduceOp : uint8_t {
  kAverage = 0,
  kSum = 1,
  kAdasum = 2,
  kMin = 3,
  kMax = 4,
  kProduct = 5,
};
inline constexpr int kNumReduceOps = 6;

const char* Name(Kind kind);    // "allreduce"
const char* Name(DType dtype);  // "float32"
const char* Name(ReduceOp op);  // "Average"
size_t ItemBytes(DType dtype);  // 1, 2, 4 or 8
bool IsFloating(DType dtype);

}  // namespace hvd

#endif  // TF_OPS_BASE_TYPES_H_
