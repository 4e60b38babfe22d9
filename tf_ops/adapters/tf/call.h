// Call: one request of a running op, from the enqueuing to its end.
//
// The core completes it from a thread of its own.  A cancelled step withdraws what is not
// scheduled yet; without that, Session.run would return only when the pending collective ends.
//
// Two parties hold it: the core until the end, and the step's cancellation callback, which
// TensorFlow drops when it is deregistered or has run.

#ifndef TF_OPS_ADAPTERS_TF_CALL_H_
#define TF_OPS_ADAPTERS_TF_CALL_H_

#include <functional>
#include <memory>
#include <mutex>

#include "tensorflow/core/framework/cancellation.h"
#include "tf_ops/adapters/tf/compat.h"
#include "tf_ops/runtime/c_api.h"

namespace hvd_tf {

class Call {
 public:
  using Ended = std::function<void(int code, const char* message)>;

  // Enqueues `request`; `ended` runs exactly once, perhaps before this returns.  What `request`
  // has in `done` and `context` is overwritten.  `context` lives until the end.
  static void Begin(tf::OpKernelContext* context, hvd_request* request, Ended ended);

  // Of the `context` that the core gives to hvd_request::allocate.
  static tf::OpKernelContext* ContextOf(void* call);

 private:
  Call(tf::OpKernelContext* context, Ended ended);

  void Cancel();
  static void Done(void* context, int code, const char* message);

  tf::OpKernelContext* const context_;
  const Ended ended_;
  tf::CancellationManager* const manager_;
  tf::CancellationToken token_ = 0;
  bool registered_ = false;

  std::mutex mutex_;
  uint64_t id_ = 0;         // guarded by mutex_; 0: not enqueued yet
  bool cancelled_ = false;  // guarded by mutex_
};

}  // namespace hvd_tf

#endif  // TF_OPS_ADAPTERS_TF_CALL_H_
