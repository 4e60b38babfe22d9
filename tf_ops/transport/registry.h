// Which transports this build has, and which one a job uses.

#ifndef TF_OPS_TRANSPORT_REGISTRY_H_
#define TF_OPS_TRANSPORT_REGISTRY_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "tf_ops/base/deadline.h"
#include "tf_ops/base/fd.h"
#include "tf_ops/transport/fabric.h"
#include "tf_ops/transport/listeners.h"
#include "tf_ops/transport/world.h"

namespace hvd {

struct FabricOptions {
  // A name of the registry.
  std::string transport = "auto";
  // Memory of a rank in which tensors meet those of its host; at least 4096.
  size_t staging_bytes = 4 << 20;
  // How long a rank looks for one of its host before it sleeps.
  Clock::duration spin{};
};

// InvalidArgument: no such transport; the text lists those that there are.
Status CheckTransport(const std::string& name);

// InvalidArgument: no such transport, or it does not serve this world; the text lists those
// that do.  `listeners` may be invalid when the world has one rank.
Status NewFabric(const FabricOptions& options, const World& world, Listeners listeners,
                 FdTable* table, std::unique_ptr<Fabric>* fabric);

// Opens the sockets at which peers will call this rank, before anyone knows the world:
// `endpoints` is what to publish (World::endpoints).
Status OpenListener(bool loopback_only, FdTable* table, Listeners* listeners,
                    std::vector<std::string>* endpoints);

}  // namespace hvd

#endif  // TF_OPS_TRANSPORT_REGISTRY_H_
