// The local transport: ranks that are threads of one process.
//
// It serves a job of one rank, and lets tests run N ranks with no sockets.  All ranks
// share a LocalHub; nothing else is shared.

#ifndef TF_OPS_TRANSPORT_LOCAL_LOCAL_FABRIC_H_
#define TF_OPS_TRANSPORT_LOCAL_LOCAL_FABRIC_H_

#include <memory>
#include <string>
#include <vector>

#include "tf_ops/transport/fabric.h"

namespace hvd {

class LocalHub;

// `hosts`: the host that each rank is said to be on, at least one.
std::shared_ptr<LocalHub> NewLocalHub(std::vector<std::string> hosts);

// The fabric of `rank`; destroying it looks to the others like the end of the rank.
std::unique_ptr<Fabric> NewLocalFabric(std::shared_ptr<LocalHub> hub, int rank);

}  // namespace hvd

#endif  // TF_OPS_TRANSPORT_LOCAL_LOCAL_FABRIC_H_
