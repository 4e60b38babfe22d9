#include "tf_ops/adapters/tf/status.h"

#include "tf_ops/runtime/c_api.h"

namespace hvd_tf {

absl::Status ToTensorFlow(int code, const std::string& message) {
  // Never Aborted or Unavailable: MonitoredTrainingSession takes them for a preemption
  // and makes new sessions for ever.
  switch (code) {
    case HVD_CANCELLED:
      return absl::CancelledError(message);
    case HVD_INVALID_ARGUMENT:
      return absl::InvalidArgumentError(message);
    case HVD_FAILED_PRECONDITION:
    case HVD_NOT_INITIALIZED:
      return absl::FailedPreconditionError(message);
    case HVD_OUT_OF_RANGE:
      return absl::OutOfRangeError(message);
    case HVD_UNIMPLEMENTED:
      return absl::UnimplementedError(message);
    case HVD_PEER_LOST:
    case HVD_DEADLINE_EXCEEDED:
    case HVD_SHUTDOWN:
      return absl::UnknownError(message);
    default:
      return absl::InternalError(message);
  }
}

}  // namespace hvd_tf
