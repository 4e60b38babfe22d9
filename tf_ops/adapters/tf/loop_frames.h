// LoopFrames: which turn of which loop runs a node, in words that all ranks share.
//
// TensorFlow tells a kernel its loop by a number that is hashed from the names of the loops
// around the node and from the turns of the outer ones (PropagatorState in
// core/common_runtime/propagator_state.h).  A name may hold a counter, "/_12", which differs
// between ranks.  But a loop's name is the beginning of the name of each node in it, so the
// hash can be made again; and it can be undone, which gives the turn of the outer loop.

#ifndef TF_OPS_ADAPTERS_TF_LOOP_FRAMES_H_
#define TF_OPS_ADAPTERS_TF_LOOP_FRAMES_H_

#include <cstdint>
#include <string>
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
  // outside of loops.  In more than two loops, or in one whose name is not the beginning of the
  // node's, TensorFlow's number stands for the outer loops, "@#14695:3", which ranks with other
  // graphs may not share.
  std::string TextOf(uint64_t frame, int64_t iteration) const;

 private:
  // The turn of the outer loop of two; -1: there are no two.
  int64_t OuterTurn(uint64_t frame) const;
  // The `turn` for which TensorFlow combines it with the hash of a loop's name to `hash`; -1: none.
  int64_t TurnOf(uint64_t hash, uint64_t name) const;

  const FrameHash hash_;
  std::vector<uint64_t> names_;   // hashes of what the loops around the node may be called
  std::vector<uint64_t> single_;  // of each, the number of its frame where it is in no other loop
};

}  // namespace hvd_tf

#endif  // TF_OPS_ADAPTERS_TF_LOOP_FRAMES_H_
