// Blocks: how the algorithms cut an array to what fits in scratch memory.

#ifndef TF_OPS_COLLECTIVES_ALGORITHMS_BLOCK_H_
#define TF_OPS_COLLECTIVES_ALGORITHMS_BLOCK_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "tf_ops/base/bytes.h"

namespace hvd {

// Vectors of any width, and every type, start well here.
inline constexpr size_t kBlockAlign = 64;

inline size_t RoundUp(size_t bytes) {
  return (bytes + kBlockAlign - 1) / kBlockAlign * kBlockAlign;
}

// Elements per block such that `parts` buffers of a block fit in the scratch memory; >= 1.
inline int64_t BlockCount(Bytes scratch, int parts, size_t item) {
  const size_t per_part = scratch.size / parts / kBlockAlign * kBlockAlign;
  return std::max<int64_t>(static_cast<int64_t>(per_part / item), 1);
}

}  // namespace hvd

#endif  // TF_OPS_COLLECTIVES_ALGORITHMS_BLOCK_H_
