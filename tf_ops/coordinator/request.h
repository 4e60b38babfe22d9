// Request: what a caller gave to one collective on this rank: a tensor, or a group of them.
//
// Its life: queued, announced, scheduled, (executing,) done.  A cancellation counts until
// it is scheduled.  `done` runs exactly once, never under a lock, never on the thread that
// enqueued, and never before the data plane has left the buffers.

#ifndef TF_OPS_COORDINATOR_REQUEST_H_
#define TF_OPS_COORDINATOR_REQUEST_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "tf_ops/base/status.h"
#include "tf_ops/collectives/signature.h"

namespace hvd {

struct Request {
  // What the caller sets.
  Signature signature;
  struct Buffers {
    const void* input = nullptr;  // row-major; lives until `done`
    void* output = nullptr;       // null: `allocate` gives it when the shape is known
  };
  std::vector<Buffers> buffers;  // of each tensor
  // The memory for output `i` of `shape`; empty where every output is given or nothing comes
  // out.  Data thread, at most once for each, before `done`.
  std::function<Status(size_t i, const std::vector<int64_t>& shape, void** output)> allocate;
  int32_t* received_splits = nullptr;  // alltoall: gets the rows that came from each member
  std::function<void(const Status& status)> done;

  // What the queue sets.
  enum class State { kQueued, kAnnounced, kScheduled };
  State state = State::kQueued;  // guarded by the queue's lock
  uint64_t id = 0;               // what Cancel() takes; never 0; guarded too
  bool cancelled = false;        // guarded too
  // The control thread's: the cache id by which it was announced; 0: in full.
  uint32_t reported_as = 0;
};

}  // namespace hvd

#endif  // TF_OPS_COORDINATOR_REQUEST_H_
