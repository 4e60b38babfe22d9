#include "tf_ops/transport/net/endpoint.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <fstream>

#include "tf_ops/base/strings.h"

namespace hvd {
namespace {

bool StartsWith(const std::string& text, const char* prefix) { return text.rfind(prefix, 0) == 0; }

// The first item with `prefix`, or empty.
std::string Find(const std::vector<std::string>& items, const char* prefix) {
  for (const std::string& item : items) {
    if (StartsWith(item, prefix)) return item;
  }
  return {};
}

}  // namespace

std::string OwnProcessItem() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  struct stat ns;
  if (boot.empty() || stat("/proc/self/ns/pid", &ns) != 0) return {};
  return StrCat(kProcessPrefix, boot, "/", ns.st_ino, "/", getpid());
}

std::string UnixName(const std::string& item) {
  return StartsWith(item, kUnixPrefix) ? item.substr(sizeof(kUnixPrefix) - 1) : std::string();
}

std::vector<std::string> Callable(const std::vector<std::string>& items, bool same_host) {
  std::vector<std::string> callable;
  const std::string local = Find(items, kUnixPrefix);
  if (same_host && !local.empty()) callable.push_back(local);
  for (const std::string& item : items) {
    if (!StartsWith(item, kUnixPrefix) && !StartsWith(item, kProcessPrefix)) {
      callable.push_back(item);
    }
  }
  return callable;
}

pid_t VisiblePid(const std::vector<std::string>& items, const std::vector<std::string>& own) {
  const std::string theirs = Find(items, kProcessPrefix);
  const std::string mine = Find(own, kProcessPrefix);
  const size_t slash = theirs.rfind('/');
  if (slash == std::string::npos || theirs.substr(0, slash) != mine.substr(0, mine.rfind('/'))) {
    return 0;
  }
  const long pid = std::strtol(theirs.c_str() + slash + 1, nullptr, 10);
  return pid > 0 ? static_cast<pid_t>(pid) : 0;
}

}  // namespace hvd
