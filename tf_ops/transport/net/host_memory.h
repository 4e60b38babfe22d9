// HostMemory: memory that the ranks of one host give to each other while they start.
//
// Each rank makes a part of its own and hands its descriptor to the others; then the
// host's leader decides, for all of them alike, whether the whole is used.
//
// Threads: the control thread, during Start().

#ifndef TF_OPS_TRANSPORT_NET_HOST_MEMORY_H_
#define TF_OPS_TRANSPORT_NET_HOST_MEMORY_H_

#include <string>

#include "tf_ops/base/fd.h"

namespace hvd {

class HostMemory {
 public:
  virtual ~HostMemory() = default;

  // Makes this rank's part.  Empty, or why it cannot be.
  virtual std::string Make(Fd* fd) = 0;

  // The part of `rank`, another rank of this host; `fd` is not needed after the call.  Empty,
  // or why it cannot be used.
  virtual std::string Take(int rank, const Fd& fd) = 0;

  // The leader's verdict: used from now on, or dropped.
  virtual void Decide(bool used) = 0;
};

}  // namespace hvd

#endif  // TF_OPS_TRANSPORT_NET_HOST_MEMORY_H_
