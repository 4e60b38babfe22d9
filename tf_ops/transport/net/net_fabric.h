// The fabric of ranks that are processes: the control channel over sockets, and the planes
// by which bytes move between them.

#ifndef TF_OPS_TRANSPORT_NET_NET_FABRIC_H_
#define TF_OPS_TRANSPORT_NET_NET_FABRIC_H_

#include <functional>
#include <memory>
#include <vector>

#include "tf_ops/base/fd.h"
#include "tf_ops/transport/fabric.h"
#include "tf_ops/transport/listeners.h"
#include "tf_ops/transport/net/host_memory.h"
#include "tf_ops/transport/net/plane.h"
#include "tf_ops/transport/net/stop.h"
#include "tf_ops/transport/world.h"

namespace hvd {

struct Planes {
  // The first that serves a set of ranks carries it; the last one serves all.
  std::vector<std::unique_ptr<Plane>> list;
  // What the ranks of a host share, or null; one of `list` owns it.
  HostMemory* memory = nullptr;
  // No memory is then an error of Start(), instead of a line in the log.
  bool memory_required = false;
  // Within a host, control connections use Unix sockets where there are any.
  bool unix_sockets = true;
};

// What it gets outlives the planes that it makes.
using MakePlanes = std::function<Planes(const World&, FdTable*, const Stop*)>;

// The fabric of `world.rank`.  `listeners` are the sockets behind the endpoints that this
// rank published; `table` outlives the fabric.
std::unique_ptr<Fabric> NewNetFabric(World world, Listeners listeners, FdTable* table,
                                     const MakePlanes& make_planes);

}  // namespace hvd

#endif  // TF_OPS_TRANSPORT_NET_NET_FABRIC_H_
