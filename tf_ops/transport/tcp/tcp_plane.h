// The TCP plane: sockets between ranks, made on demand.  The default between hosts.

#ifndef TF_OPS_TRANSPORT_TCP_TCP_PLANE_H_
#define TF_OPS_TRANSPORT_TCP_TCP_PLANE_H_

#include <memory>

#include "tf_ops/base/fd.h"
#include "tf_ops/transport/net/plane.h"
#include "tf_ops/transport/net/stop.h"
#include "tf_ops/transport/world.h"

namespace hvd {

// It serves every set of ranks.  All arguments outlive it.
std::unique_ptr<Plane> NewTcpPlane(const World& world, FdTable* table, const Stop* stop);

}  // namespace hvd

#endif  // TF_OPS_TRANSPORT_TCP_TCP_PLANE_H_
