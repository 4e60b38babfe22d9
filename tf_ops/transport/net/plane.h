// A Plane is one way in which bytes move between ranks that are processes: what differs
// between transports that share the control channel of this folder.
//
// Threads: see each member.

#ifndef TF_OPS_TRANSPORT_NET_PLANE_H_
#define TF_OPS_TRANSPORT_NET_PLANE_H_

#include <memory>
#include <string>
#include <vector>

#include "tf_ops/base/fd.h"
#include "tf_ops/base/status.h"
#include "tf_ops/transport/transport.h"

namespace hvd {

class Plane {
 public:
  virtual ~Plane() = default;

  // Whether it connects `members` (global ranks, ascending).  The same on all of them, and
  // final once Start() has succeeded.  Data thread.
  virtual bool Serves(const std::vector<int>& members) const = 0;

  // REQUIRES: Serves(members), and this rank is among them.  Data thread.
  virtual std::unique_ptr<Transport> NewTransport(std::vector<int> members) = 0;

  // `peer` opened a data connection.  Control thread.
  virtual void Adopt(int peer, Fd fd) = 0;

  // No data connection can be let in, and why; empty: again they can.  Control thread.
  virtual void SetTrouble(const std::string& trouble) = 0;

  // The rank's Stop is set: wakes whoever waits in a transport of this plane.  Any thread.
  virtual void Abort() = 0;
};

}  // namespace hvd

#endif  // TF_OPS_TRANSPORT_NET_PLANE_H_
