// The allreduce that is no sum: Adasum (device/adasum.h), tensor by tensor.
//
// Recursive doubling: in step k a rank and the one whose number differs in bit k exchange what they
// have and combine it, the lower rank's first.  log2(n) steps, in each all bytes are sent, and
// memory for one more tensor.  Both sides of an exchange get the same bits, so all ranks end with
// the same. Narrower types are computed in float64 and rounded by way of float32 in each step.

#ifndef TF_OPS_COLLECTIVES_ALGORITHMS_ADASUM_H_
#define TF_OPS_COLLECTIVES_ALGORITHMS_ADASUM_H_

#include "tf_ops/base/status.h"
#include "tf_ops/transport/collective_call.h"
#include "tf_ops/transport/transport.h"

namespace hvd {

// REQUIRES: a power of two ranks; a segment is a whole tensor of a floating type.
Status AllreduceAdasum(Transport& transport, const CollectiveCall& call);

}  // namespace hvd

#endif  // TF_OPS_COLLECTIVES_ALGORITHMS_ADASUM_H_
