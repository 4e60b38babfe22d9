// Counters: what the control plane of one generation has done, for tests and benchmarks.
//
// Threads: any.

#ifndef TF_OPS_COORDINATOR_COUNTERS_H_
#define TF_OPS_COORDINATOR_COUNTERS_H_

#include <atomic>
#include <cstdint>

namespace hvd {

struct Counters {
  using Count = std::atomic<uint64_t>;
  Count frames_sent{0};  // to all neighbors, heartbeats included
  Count frame_bytes_sent{0};
  Count reports_in_full{0};  // of this rank's own tensors
  Count reports_cached{0};
  Count tensors_in_full{0};  // in responses for this rank, errors included
  Count tensors_cached{0};
  Count frames_received{0};
  Count calls{0};  // collectives that the data plane was given
};

}  // namespace hvd

#endif  // TF_OPS_COORDINATOR_COUNTERS_H_
