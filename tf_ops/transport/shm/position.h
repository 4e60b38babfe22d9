// Positions: how far a rank is in the ordered stream of collectives.
//
// A position is (sequence of the call) << 24 | (blocks of it that are done).  It only grows
// over all calls of a rank, whatever their process sets: so "at least the position that I
// wait for" is right even when the peer is in a later call already.

#ifndef TF_OPS_TRANSPORT_SHM_POSITION_H_
#define TF_OPS_TRANSPORT_SHM_POSITION_H_

#include <cstdint>

namespace hvd {

inline constexpr int kBlockBits = 24;
inline constexpr uint64_t kMostBlocks = (uint64_t{1} << kBlockBits) - 1;
inline constexpr uint64_t kMostSequence = (uint64_t{1} << (63 - kBlockBits)) - 1;

// After `blocks` blocks of the call `sequence`.
constexpr uint64_t PositionOf(uint64_t sequence, uint64_t blocks) {
  return sequence << kBlockBits | blocks;
}

// Tags of slots that hold a chunk of a message, apart from those above.
constexpr uint64_t MessageTag(int to, uint64_t chunk) {
  return uint64_t{1} << 63 | static_cast<uint64_t>(to) << 48 | (chunk & 0xffff'ffff'ffff);
}

}  // namespace hvd

#endif  // TF_OPS_TRANSPORT_SHM_POSITION_H_
