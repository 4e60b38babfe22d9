// What a frame must fulfil beyond being readable before the control loop believes it.

#ifndef TF_OPS_COORDINATOR_FRAME_CHECK_H_
#define TF_OPS_COORDINATOR_FRAME_CHECK_H_

#include "tf_ops/base/status.h"
#include "tf_ops/coordinator/message.h"
#include "tf_ops/transport/topology.h"
#include "tf_ops/transport/world.h"

namespace hvd {

// Internal: `frame` goes the wrong way between `peer` and this rank, or speaks of ranks or
// process sets that it cannot speak of.
Status CheckFrame(const World& world, const Topology& topology, int peer, const Frame& frame);

}  // namespace hvd

#endif  // TF_OPS_COORDINATOR_FRAME_CHECK_H_
