// CollectiveKernel: the one kernel class behind every collective op.
//
// ComputeAsync hands the tensors to the core and returns (call.h).

#ifndef TF_OPS_ADAPTERS_TF_COLLECTIVE_KERNEL_H_
#define TF_OPS_ADAPTERS_TF_COLLECTIVE_KERNEL_H_

#include <string>

#include "tf_ops/adapters/tf/compat.h"
#include "tf_ops/adapters/tf/node_frames.h"
#include "tf_ops/adapters/tf/op_table.h"

namespace hvd_tf {

class CollectiveKernel final : public tf::AsyncOpKernel {
 public:
  explicit CollectiveKernel(tf::OpKernelConstruction* c);

  void ComputeAsync(tf::OpKernelContext* c, DoneCallback done) override;

 private:
  // Puts the splits of an alltoall into `request`.
  absl::Status TakeSplits(tf::OpKernelContext* c, hvd_request* request) const;

  const OpRow& row_;
  NodeFrames loops_;
  std::string name_;  // on the wire, but for what is known when it runs
  int num_tensors_;   // inputs that are tensors of the collective
  bool grouped_ = false;
  // Attributes; those that the op lacks keep these values.
  std::string tensor_name_;
  int num_others_ = 0;
  bool gradient_ = false;
  int process_set_ = 0;
  int reduce_op_ = HVD_SUM;
  std::string wire_dtype_;
  int root_rank_ = 0;
  float prescale_ = 1;
  float postscale_ = 1;
};

}  // namespace hvd_tf

#endif  // TF_OPS_ADAPTERS_TF_COLLECTIVE_KERNEL_H_
