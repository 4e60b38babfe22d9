#include "tf_ops/collectives/select.h"

namespace hvd {

AllreduceAlgorithm SelectAllreduce(int size, size_t bytes) {
  // Two ranks send the same bytes either way, so fewer steps win.  Among more, a small
  // tensor is all latency: (n-1) messages instead of 2(n-1).
  constexpr size_t kSmallBytes = 16 << 10;
  return size <= 2 || bytes <= kSmallBytes ? AllreduceAlgorithm::kExchange
                                           : AllreduceAlgorithm::kDirect;
}

}  // namespace hvd
