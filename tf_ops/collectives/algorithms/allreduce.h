// The allreduce algorithms on SendRecv alone.
//
// Both work through the array in blocks that fit in `scratch`, and both end in
// ReduceInOrder (device/reduce.h), so they give the same bits.

#ifndef TF_OPS_COLLECTIVES_ALGORITHMS_ALLREDUCE_H_
#define TF_OPS_COLLECTIVES_ALGORITHMS_ALLREDUCE_H_

#include "tf_ops/base/bytes.h"
#include "tf_ops/base/status.h"
#include "tf_ops/transport/collective_call.h"
#include "tf_ops/transport/transport.h"

namespace hvd {

// Each rank sends its block to every other and reduces all of it.
Status AllreduceExchange(Transport& transport, const CollectiveCall& call, Bytes scratch);

// Each rank owns a slice of the block: it receives that slice from all others, reduces
// it, and sends the result to all others.
Status AllreduceDirect(Transport& transport, const CollectiveCall& call, Bytes scratch);

}  // namespace hvd

#endif  // TF_OPS_COLLECTIVES_ALGORITHMS_ALLREDUCE_H_
