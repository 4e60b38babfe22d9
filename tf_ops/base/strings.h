// Text helpers for error messages.

#ifndef TF_OPS_BASE_STRINGS_H_
#define TF_OPS_BASE_STRINGS_H_

#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

namespace hvd {

// Joins its arguments as text: StrCat("rank ", 3, " of ", n).
template <typename... Parts>
std::string StrCat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

// "1, 2, 3"; a list longer than `most` ends in "... (N in all)".
template <typename Container>
std::string Join(const Container& items, size_t most = 16) {
  std::ostringstream out;
  size_t n = 0;
  for (const auto& item : items) {
    if (n == most) {
      out << ", ... (" << items.size() << " in all)";
      break;
    }
    out << (n++ ? ", " : "") << item;
  }
  return out.str();
}

// "rank 3", or "ranks 1, 2".
inline std::string RanksText(const std::vector<int>& ranks) {
  return StrCat(ranks.size() == 1 ? "rank " : "ranks ", Join(ranks));
}

// A shape as programs print it: "[2, 3]".
inline std::string ShapeText(const std::vector<int64_t>& shape) {
  return StrCat("[", Join(shape, 32), "]");
}

}  // namespace hvd

#endif  // TF_OPS_BASE_STRINGS_H_
