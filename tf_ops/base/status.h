// Status: the outcome of an operation, as a value.
//
// Errors travel as Status everywhere inside the core; nothing is thrown across a
// thread or the C API.  The codes are those of runtime/c_api.h, number for number.
//
// A message reads: who 'tensor': the fact, with ranks and both values; what to do.
// Nothing parses a message: code that must tell errors apart looks at the code.
//
// Threads: a Status is a plain value; share it like a string.

#ifndef TF_OPS_BASE_STATUS_H_
#define TF_OPS_BASE_STATUS_H_

#include <ostream>
#include <string>
#include <utility>

namespace hvd {

enum class Code : int {
  kOk = 0,
  kCancelled = 1,           // the caller withdrew the request before it was scheduled
  kInvalidArgument = 2,     // one rank can see by itself that the request is wrong
  kFailedPrecondition = 3,  // ranks disagree, or another rank refused its part
  kOutOfRange = 4,          // a rank ended in order, and this was a gradient (CONTRACT: Leaving)
  kUnimplemented = 5,       // not built, or not in this build
  kInternal = 6,            // a bug of ours
  kPeerLost = 7,            // a rank is gone or the job was aborted; a new init() may recover
  kDeadlineExceeded = 8,    // nobody answered in time; a new init() may recover
  kShutdown = 9,            // the runtime of this process was shut down, or a peer left
  kNotInitialized = 10,     // no runtime: init() was not called
};

inline constexpr int kNumCodes = 11;

// "InvalidArgument", ...; for log lines.
const char* CodeName(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  static Status Ok() { return Status(); }
  static Status Cancelled(std::string m) { return {Code::kCancelled, std::move(m)}; }
  static Status InvalidArgument(std::string m) { return {Code::kInvalidArgument, std::move(m)}; }
  static Status FailedPrecondition(std::string m) {
    return {Code::kFailedPrecondition, std::move(m)};
  }
  static Status OutOfRange(std::string m) { return {Code::kOutOfRange, std::move(m)}; }
  static Status Unimplemented(std::string m) { return {Code::kUnimplemented, std::move(m)}; }
  static Status Internal(std::string m) { return {Code::kInternal, std::move(m)}; }
  static Status PeerLost(std::string m) { return {Code::kPeerLost, std::move(m)}; }
  static Status DeadlineExceeded(std::string m) { return {Code::kDeadlineExceeded, std::move(m)}; }
  static Status Shutdown(std::string m) { return {Code::kShutdown, std::move(m)}; }

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }

  // "Code: message", or "Ok".
  std::string ToString() const;

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

std::ostream& operator<<(std::ostream& out, const Status& status);

}  // namespace hvd

#define HVD_RETURN_IF_ERROR(expr)              \
  do {                                         \
    ::hvd::Status hvd_status_ = (expr);        \
    if (!hvd_status_.ok()) return hvd_status_; \
  } while (false)

#endif  // TF_OPS_BASE_STATUS_H_
