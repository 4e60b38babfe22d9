// StreamRunner: what the control loop hands the ordered stream to.
//
// The Executor is one; a simulation is another.

#ifndef TF_OPS_COORDINATOR_STREAM_RUNNER_H_
#define TF_OPS_COORDINATOR_STREAM_RUNNER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "tf_ops/coordinator/message.h"
#include "tf_ops/coordinator/request.h"

namespace hvd {

class StreamRunner {
 public:
  virtual ~StreamRunner() = default;

  // Runs `response`, or fails it, after all that was posted before.  `requests`: this rank's,
  // one per tensor, already scheduled; they are finished with it, or, where it is a part of
  // its tensor, with the last part.
  virtual void Post(Response response, std::vector<std::shared_ptr<Request>> requests) = 0;

  // Responses posted and not over.
  virtual int in_flight() const = 0;

  // What the data plane is busy with; nullopt: nothing.
  struct Running {
    uint64_t sequence = 0;
    std::shared_ptr<const Signature> first;  // of its tensors
    std::vector<int> absent;                 // the ranks of its set that take no part, ascending
    uint64_t moved = 0;                      // Transport::moved()
  };
  virtual std::optional<Running> running() const = 0;

  // Ends all that is posted, and all that will be, with `why`.
  virtual void Abort(const Status& why) = 0;
};

}  // namespace hvd

#endif  // TF_OPS_COORDINATOR_STREAM_RUNNER_H_
