#include "tf_ops/base/status.h"

namespace hvd {

const char* CodeName(Code code) {
  switch (code) {
    case Code::kOk:
      return "Ok";
    case Code::kCancelled:
      return "Cancelled";
    case Code::kInvalidArgument:
      return "InvalidArgument";
    case Code::kFailedPrecondition:
      return "FailedPrecondition";
    case Code::kOutOfRange:
      return "OutOfRange";
    case Code::kUnimplemented:
      return "Unimplemented";
    case Code::kInternal:
      return "Internal";
    case Code::kPeerLost:
      return "PeerLost";
    case Code::kDeadlineExceeded:
      return "DeadlineExceeded";
    case Code::kShutdown:
      return "Shutdown";
    case Code::kNotInitialized:
      return "NotInitialized";
  }
  return "Unknown";
}

std::string Status::ToString() const {
  return ok() ? "Ok" : std::string(CodeName(code_)) + ": " + message_;
}

std::ostream& operator<<(std::ostream& out, const Status& status) {
  return out << status.ToString();
}

}  // namespace hvd
