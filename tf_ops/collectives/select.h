// Which algorithm runs: pure functions of what all ranks know alike.
//
// All choices give the same bits: contributions are added in rank order
// (CONTRACT: "Same bits").

#ifndef TF_OPS_COLLECTIVES_SELECT_H_
#define TF_OPS_COLLECTIVES_SELECT_H_

#include <cstddef>

namespace hvd {

enum class AllreduceAlgorithm {
  kExchange,  // everybody sends all to everybody: one step, (n-1) x bytes sent
  kDirect,    // reduce-scatter by direct exchange, then gather: two steps, 2(n-1)/n x bytes
};

AllreduceAlgorithm SelectAllreduce(int size, size_t bytes);

}  // namespace hvd

#endif  // TF_OPS_COLLECTIVES_SELECT_H_
