#include "tf_ops/adapters/tf/wire_name.h"

#include <algorithm>
#include <cctype>

namespace hvd_tf {
namespace {

// "_12": what TensorFlow puts between the caller's name and the callee's node.
bool IsCounter(const std::string& part) {
  return part.size() > 1 && part[0] == '_' &&
         std::all_of(part.begin() + 1, part.end(), [](unsigned char c) { return std::isdigit(c); });
}

}  // namespace

std::string WireName(const std::string& node, const std::string& given, bool ignore_scope) {
  std::string path;
  size_t begin = 0;
  for (size_t slash; (slash = node.find('/', begin)) != std::string::npos; begin = slash + 1) {
    const std::string part = node.substr(begin, slash - begin);
    if (!IsCounter(part)) path += part + "/";
  }
  return (ignore_scope ? "" : path) + (given.empty() ? node.substr(begin) : given);
}

}  // namespace hvd_tf
