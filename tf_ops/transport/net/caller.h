// The calling side of a connection between two ranks.

#ifndef TF_OPS_TRANSPORT_NET_CALLER_H_
#define TF_OPS_TRANSPORT_NET_CALLER_H_

#include <string>
#include <vector>

#include "tf_ops/base/deadline.h"
#include "tf_ops/base/fd.h"
#include "tf_ops/transport/net/handshake.h"

namespace hvd {

// Calls `peer` at each of `endpoints` (endpoint.h: Callable) in turn, again and again, until
// one of them shakes hands.  A peer that is only slow, or stopped for a while, is waited
// for; a stranger at one endpoint is passed over.  Waits; any thread.
//
// Cancelled: `stop_fd` became readable.  DeadlineExceeded: says what happened last.
// Internal: this process cannot call anybody.
Status CallPeer(const World& world, int peer, const std::vector<std::string>& endpoints,
                Channel channel, FdTable* table, int stop_fd, Deadline deadline, Fd* fd);

}  // namespace hvd

#endif  // TF_OPS_TRANSPORT_NET_CALLER_H_
