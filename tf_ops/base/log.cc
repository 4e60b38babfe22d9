#include "tf_ops/base/log.h"

#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <cctype>
#include <cstdio>
#include <ctime>

#include "tf_ops/base/strings.h"

namespace hvd {
namespace {

constexpr const char* kNames[] = {"trace", "debug", "info", "warning", "error", "off"};

// Set once per init(); plain values, so threads of an older generation may still log.
std::atomic<int> g_level{static_cast<int>(LogLevel::kWarning)};
std::atomic<bool> g_timestamps{true};
std::atomic<int> g_rank{-1};

}  // namespace

Status ParseLogLevel(const std::string& name, LogLevel* level) {
  std::string wanted = name;
  for (char& c : wanted) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (wanted == "fatal") wanted = "error";
  for (int i = 0; i <= static_cast<int>(LogLevel::kOff); ++i) {
    if (wanted == kNames[i]) {
      *level = static_cast<LogLevel>(i);
      return Status::Ok();
    }
  }
  return Status::InvalidArgument(
      StrCat("HOROVOD_LOG_LEVEL is '", name, "'; use trace, debug, info, warning, error or off"));
}

void SetLogging(LogLevel level, bool timestamps, int rank) {
  g_level = static_cast<int>(level);
  g_timestamps = timestamps;
  g_rank = rank;
}

bool LogIsOn(LogLevel level) { return static_cast<int>(level) >= g_level; }

LogLine::~LogLine() {
  std::ostringstream line;
  line << "[horovod";
  if (g_timestamps) {
    timeval now;
    gettimeofday(&now, nullptr);
    tm parts;
    localtime_r(&now.tv_sec, &parts);
    char text[48];
    const size_t n = std::strftime(text, sizeof(text), " %Y-%m-%d %H:%M:%S", &parts);
    std::snprintf(text + n, sizeof(text) - n, ".%03d", static_cast<int>(now.tv_usec / 1000));
    line << text;
  }
  if (g_rank >= 0) line << " rank " << g_rank;
  line << "] " << kNames[static_cast<int>(level_)] << ": " << text_.str() << "\n";
  const std::string whole = line.str();
  // A failed write to stderr has nowhere to be reported.
  [[maybe_unused]] ssize_t written = write(STDERR_FILENO, whole.data(), whole.size());
}

}  // namespace hvd
