#include "tf_ops/adapters/tf/wire_name.h"

#include <gtest/gtest.h>

namespace hvd_tf {
namespace {

constexpr uint64_t kNoFrame = ~uint64_t{0};

struct Case {
  const char* node;
  const char* given;
  bool ignore_scope;
  uint64_t frame;
  int64_t iteration;
  const char* want;
};

TEST(WireName, EveryRule) {
  for (const Case& c : {
           Case{"x", "", false, 0, 0, "x"},
           Case{"scope/x_1", "", false, 0, 0, "scope/x_1"},
           Case{"scope/x", "", true, 0, 0, "x"},
           Case{"HorovodAllreduce", "given", false, kNoFrame, 0, "given"},
           Case{"call/HorovodAllreduce", "given", false, 0, 0, "call/given"},
           // TensorFlow's counters go, names that only look like them stay.
           Case{"PartitionedCall/_12/x", "", false, 0, 0, "PartitionedCall/x"},
           Case{"_12/_3/x", "", false, 0, 0, "x"},
           Case{"a/_b1/_/12/x", "", false, 0, 0, "a/_b1/_/12/x"},
           // The same function called twice in a step.
           Case{"PartitionedCall_1/_7/x", "", false, 0, 0, "PartitionedCall_1/x"},
           // One node of a loop, in flight several times.
           Case{"while/x", "", false, 77, 0, "while/x@77:0"},
           Case{"while/x", "", false, 77, 3, "while/x@77:3"},
           Case{"x", "", false, kNoFrame, 5, "x"},
       }) {
    EXPECT_EQ(WireName(c.node, c.given, c.ignore_scope, c.frame, c.iteration), c.want);
  }
}

}  // namespace
}  // namespace hvd_tf
