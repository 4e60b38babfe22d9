// LoopFrames: which turn of which loop runs a node, in words that all ranks share.
//
// TensorFlow tells a kernel its loop by a number that is hashed from the names of the loops
// around the node and from the turns of the outer ones (PropagatorState in
// core/common_runtime/propagator_state.h).  A name may hold a counter, "/_12", which differs
// between ranks.  But a loop's name is the beginning of the name of each node in it; so the
// hash can be made again and the turn of the outer loop found by trying.

#ifndef TF_OPS_ADAPTERS_TF_LOOP_FRAMES_H_
#define TF_OPS_ADAPTERS_TF_LOOP_FRAMES_H_

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace hvd_tf {

// TensorFlow's, which all its frames are made with.
struct FrameHash {
  uint64_t (*of)(const std::string& loop);
  uint64_t (*combine)(uint64_t a, uint64_t b);
};

// Threads: any.
class LoopFrames {
 public:
  // Of the node with this full name.
  LoopFrames(const std::string& node, FrameHash hash);

  // "@3" in the fourth turn of a loop, "@2:3" where that is in the third turn of another, ""
  // outside of loops.  Below that, and beyond the outer loop's first million turns, TensorFlow's
  // number stands for the outer loops, "@#14695:3", which ranks with other graphs may not share.
  std::string TextOf(uint64_t frame, int64_t iteration);

 private:
  // An inner loop: the number of the outer one, and the hash of its own name.
  struct Nested {
    uint64_t outer;
    uint64_t inner;
  };
  bool IsAt(const Nested& loops, int64_t turn, uint64_t frame) const;
  // The outer loop's turn; -1: there is none.  REQUIRES: mutex_ is held.
  int64_t OuterTurn(uint64_t frame);

  const FrameHash hash_;
  std::mutex mutex_;
  std::vector<uint64_t> single_;  // the numbers of frames that are in no other
  std::vector<Nested> nested_;    // what the node may be in; once known, that alone
  int64_t last_ = 0;              // turn of the outer loop
};

}  // namespace hvd_tf

#endif  // TF_OPS_ADAPTERS_TF_LOOP_FRAMES_H_
