#include "tf_ops/adapters/tf/loop_frames.h"

#include <algorithm>

namespace hvd_tf {
namespace {

// TensorFlow combines hashes as a ^ (b + kAdded + a * 2^10 + a / 2^4) (Hash64Combine in
// tsl/platform/hash.h).  What is found by undoing that is made again by TensorFlow's own function,
// so that of another formula nothing would be found.
constexpr uint64_t kAdded = 0x9e3779b97f4a7800;
constexpr int64_t kMostTurns = int64_t{1} << 30;

uint64_t SecondOf(uint64_t combined, uint64_t a) {
  return (combined ^ a) - kAdded - (a << 10) - (a >> 4);
}

}  // namespace

LoopFrames::LoopFrames(const std::string& node, FrameHash hash) : hash_(hash) {
  for (size_t end = node.find('/'); end != std::string::npos; end = node.find('/', end + 1)) {
    const std::string loop = node.substr(0, end);
    names_.push_back(hash_.of(loop));
    names_.push_back(hash_.of(loop + "/while_context"));  // control flow of TensorFlow 1
  }
  for (uint64_t name : names_) single_.push_back(hash_.combine(0, hash_.combine(0, name)));
}

std::string LoopFrames::TextOf(uint64_t frame, int64_t iteration) const {
  // Kernels outside the executor have no frame; TensorFlow says so with all bits set.
  constexpr uint64_t kNoFrame = ~uint64_t{0};
  if (frame == 0 || frame == kNoFrame) return "";
  const std::string turn = std::to_string(iteration);
  if (std::find(single_.begin(), single_.end(), frame) != single_.end()) return "@" + turn;
  const int64_t outer = OuterTurn(frame);
  return "@" + (outer >= 0 ? std::to_string(outer) : "#" + std::to_string(frame)) + ":" + turn;
}

int64_t LoopFrames::OuterTurn(uint64_t frame) const {
  for (size_t i = 0; i < names_.size(); ++i) {
    const uint64_t inner = SecondOf(frame, single_[i]);
    for (size_t j = i + 1; j < names_.size(); ++j) {
      const int64_t turn = TurnOf(inner, names_[j]);
      if (turn >= 0 && hash_.combine(single_[i], inner) == frame) return turn;
    }
  }
  return -1;
}

int64_t LoopFrames::TurnOf(uint64_t hash, uint64_t name) const {
  // turn * (2^10 + 2^-4), give or take `turn`, which is combined by "xor".
  const uint64_t ahead = hash - name - kAdded;
  if (ahead > static_cast<uint64_t>(kMostTurns) << 10) return -1;
  const auto about = static_cast<int64_t>(ahead);
  for (int64_t turn = about / 1026; turn <= about / 1023 + 1; ++turn) {
    if (hash_.combine(static_cast<uint64_t>(turn), name) == hash) return turn;
  }
  return -1;
}

}  // namespace hvd_tf
