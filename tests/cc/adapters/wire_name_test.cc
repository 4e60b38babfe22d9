#include "tf_ops/adapters/tf/wire_name.h"

#include <gtest/gtest.h>

namespace hvd_tf {
namespace {

struct Case {
  const char* node;
  const char* given;
  bool ignore_scope;
  const char* want;
};

TEST(WireName, EveryRule) {
  for (const Case& c : {
           Case{"x", "", false, "x"},
           Case{"scope/x_1", "", false, "scope/x_1"},
           Case{"scope/x", "", true, "x"},
           Case{"HorovodAllreduce", "given", false, "given"},
           Case{"call/HorovodAllreduce", "given", false, "call/given"},
           // TensorFlow's counters go, names that only look like them stay.
           Case{"PartitionedCall/_12/x", "", false, "PartitionedCall/x"},
           Case{"_12/_3/x", "", false, "x"},
           Case{"a/_b1/_/12/x", "", false, "a/_b1/_/12/x"},
           // The same function called twice in a step.
           Case{"PartitionedCall_1/_7/x", "", false, "PartitionedCall_1/x"},
       }) {
    EXPECT_EQ(WireName(c.node, c.given, c.ignore_scope), c.want);
  }
}

}  // namespace
}  // namespace hvd_tf
