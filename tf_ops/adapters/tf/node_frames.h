// NodeFrames: LoopFrames with TensorFlow's own hash.

#ifndef TF_OPS_ADAPTERS_TF_NODE_FRAMES_H_
#define TF_OPS_ADAPTERS_TF_NODE_FRAMES_H_

#include <string>

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/hash.h"
#include "tf_ops/adapters/tf/compat.h"
#include "tf_ops/adapters/tf/loop_frames.h"

namespace hvd_tf {

class NodeFrames {
 public:
  // Of the node with this full name.
  explicit NodeFrames(const std::string& node)
      : frames_(node,
                {[](const std::string& loop) -> uint64_t { return tf::Hash64(loop); },
                 [](uint64_t a, uint64_t b) -> uint64_t { return tf::Hash64Combine(a, b); }}) {}

  // In which turns of the loops around it the node runs, for its wire name.
  std::string TextOf(tf::OpKernelContext* c) const {
    return frames_.TextOf(c->frame_iter().frame_id, c->frame_iter().iter_id);
  }

 private:
  const LoopFrames frames_;
};

}  // namespace hvd_tf

#endif  // TF_OPS_ADAPTERS_TF_NODE_FRAMES_H_
