// Stop: the switch that ends every wait of one rank, once, with a reason.
//
// Threads: any.

#ifndef TF_OPS_TRANSPORT_NET_STOP_H_
#define TF_OPS_TRANSPORT_NET_STOP_H_

#include <mutex>

#include "tf_ops/base/fd.h"
#include "tf_ops/base/status.h"

namespace hvd {

class Stop {
 public:
  explicit Stop(FdTable* table) : bell_(table) {}

  // Only the first reason counts.
  void Set(const Status& why) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!why_.ok()) return;
    why_ = why;
    bell_.Ring();
  }
  // Ok as long as nobody called Set().
  Status reason() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return why_;
  }
  // False: this process has no descriptor left, and nothing works.
  bool valid() const { return bell_.valid(); }
  // Readable once set.
  int fd() const { return bell_.fd(); }

 private:
  Doorbell bell_;
  mutable std::mutex mutex_;
  Status why_;  // guarded by mutex_
};

}  // namespace hvd

#endif  // TF_OPS_TRANSPORT_NET_STOP_H_
