// A Fabric is all that one rank needs to reach the others in one generation: the
// control channel, and a Transport per process set.
//
// Threads: see each member.  Destroyed after both threads of the Runtime have ended.

#ifndef TF_OPS_TRANSPORT_FABRIC_H_
#define TF_OPS_TRANSPORT_FABRIC_H_

#include <memory>
#include <vector>

#include "tf_ops/base/status.h"
#include "tf_ops/transport/control.h"
#include "tf_ops/transport/transport.h"

namespace hvd {

class Fabric {
 public:
  virtual ~Fabric() = default;

  // Opens the control channel.  Control thread, once, before all else; ends early with
  // Abort()'s reason.  DeadlineExceeded names the ranks that did not come.
  virtual Status Start(Deadline deadline) = 0;

  virtual ControlChannel& control() = 0;

  // The ranks `members` (global, ascending, this one among them) as one set.  Opens
  // nothing until the first SendRecv.  Data thread.
  virtual std::unique_ptr<Transport> NewTransport(std::vector<int> members) = 0;

  // Ends the Start or SendRecv in progress, and every later one, with `why`.  Any
  // thread; only the first call counts.
  virtual void Abort(const Status& why) = 0;
};

}  // namespace hvd

#endif  // TF_OPS_TRANSPORT_FABRIC_H_
