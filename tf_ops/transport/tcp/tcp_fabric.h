// The TCP transport: sockets between ranks, made on demand.  The default between hosts.

#ifndef TF_OPS_TRANSPORT_TCP_TCP_FABRIC_H_
#define TF_OPS_TRANSPORT_TCP_TCP_FABRIC_H_

#include <memory>

#include "tf_ops/base/fd.h"
#include "tf_ops/transport/fabric.h"
#include "tf_ops/transport/world.h"

namespace hvd {

// The fabric of `world.rank`.  `listener` is the socket behind the endpoints that this
// rank published (socket.h); `table` outlives the fabric.
std::unique_ptr<Fabric> NewTcpFabric(World world, Fd listener, FdTable* table);

}  // namespace hvd

#endif  // TF_OPS_TRANSPORT_TCP_TCP_FABRIC_H_
