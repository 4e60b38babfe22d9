#include "tf_ops/base/types.h"

namespace hvd {
namespace {

struct DTypeRow {
  const char* name;
  size_t item_bytes;
};

constexpr DTypeRow kDTypes[kNumDTypes] = {
    {"bool", 1},  {"uint8", 1},   {"int8", 1},     {"uint16", 2},  {"int16", 2},   {"int32", 4},
    {"int64", 8}, {"float16", 2}, {"bfloat16", 2}, {"float32", 4}, {"float64", 8},
};
constexpr const char* kKinds[kNumKinds] = {"allreduce", "allgather",       "broadcast",
                                           "alltoall",  "reducescatter",   "barrier",
                                           "join",      "add_process_set", "remove_process_set"};
constexpr const char* kReduceOps[kNumReduceOps] = {"Average", "Sum", "Adasum",
                                                   "Min",     "Max", "Product"};

}  // namespace

const char* Name(Kind kind) { return kKinds[static_cast<int>(kind)]; }
const char* Name(DType dtype) { return kDTypes[static_cast<int>(dtype)].name; }
const char* Name(ReduceOp op) { return kReduceOps[static_cast<int>(op)]; }
size_t ItemBytes(DType dtype) { return kDTypes[static_cast<int>(dtype)].item_bytes; }
bool IsFloating(DType dtype) { return dtype >= DType::kFloat16; }

}  // namespace hvd
