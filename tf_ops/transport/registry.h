// Which transports this build has, and which one a job uses.

#ifndef TF_OPS_TRANSPORT_REGISTRY_H_
#define TF_OPS_TRANSPORT_REGISTRY_H_

#include <memory>
#include <string>
#include <vector>

#include "tf_ops/base/fd.h"
#include "tf_ops/transport/fabric.h"
#include "tf_ops/transport/world.h"

namespace hvd {

// The fabric that `wanted` names ("auto": the first that is viable).  InvalidArgument:
// no such transport, or it does not serve this world; the text lists those that do.
// `listener` may be invalid when the world has one rank.
Status NewFabric(const std::string& wanted, const World& world, Fd listener, FdTable* table,
                 std::unique_ptr<Fabric>* fabric);

// Opens the socket at which peers will call this rank, before anyone knows the world:
// `endpoints` is what to publish (World::endpoints).
Status OpenListener(bool loopback_only, FdTable* table, Fd* listener,
                    std::vector<std::string>* endpoints);

}  // namespace hvd

#endif  // TF_OPS_TRANSPORT_REGISTRY_H_
