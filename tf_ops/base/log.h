// Log lines on stderr: "[horovod 2026-01-31 12:00:00.123 rank 1] warning: text".
//
// HVD_LOG(kWarning) << "tensor 'x' waits";  The text is built only when the level
// is on (HOROVOD_LOG_LEVEL).  A line is written by one write(2), so lines of
// threads and ranks do not mix.
//
// Threads: any.

#ifndef TF_OPS_BASE_LOG_H_
#define TF_OPS_BASE_LOG_H_

#include <sstream>
#include <string>

#include "tf_ops/base/status.h"

namespace hvd {

enum class LogLevel : int { kTrace, kDebug, kInfo, kWarning, kError, kOff };

// "trace" ... "error", "fatal" (an old name for error), "off"; a bad name is an error.
Status ParseLogLevel(const std::string& name, LogLevel* level);

// How this process logs; set by Runtime when it starts.  rank -1: not known yet.
void SetLogging(LogLevel level, bool timestamps, int rank);
bool LogIsOn(LogLevel level);

class LogLine {
 public:
  explicit LogLine(LogLevel level) : level_(level) {}
  ~LogLine();
  template <typename T>
  LogLine& operator<<(const T& value) {
    text_ << value;
    return *this;
  }

 private:
  LogLevel level_;
  std::ostringstream text_;
};

}  // namespace hvd

#define HVD_LOG(level)                           \
  if (!::hvd::LogIsOn(::hvd::LogLevel::level)) { \
  } else                                         \
    ::hvd::LogLine(::hvd::LogLevel::level)

#endif  // TF_OPS_BASE_LOG_H_
