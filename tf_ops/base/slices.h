// Slices: how things in a row are cut evenly among ranks.

#ifndef TF_OPS_BASE_SLICES_H_
#define TF_OPS_BASE_SLICES_H_

#include <algorithm>
#include <cstdint>

namespace hvd {

// Where slice `r` of `n` begins, among `count`; the first count % n slices have one more than the
// others.  r == n: where the last one ends.
inline int64_t SliceBegin(int64_t count, int r, int n) {
  return count / n * r + std::min<int64_t>(r, count % n);
}

}  // namespace hvd

#endif  // TF_OPS_BASE_SLICES_H_
