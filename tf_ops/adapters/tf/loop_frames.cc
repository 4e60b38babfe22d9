#include "tf_ops/adapters/tf/loop_frames.h"

#include <algorithm>

namespace hvd_tf {
namespace {

constexpr int64_t kMostTurns = int64_t{1} << 20;

}  // namespace

LoopFrames::LoopFrames(const std::string& node, FrameHash hash) : hash_(hash) {
  std::vector<uint64_t> names;
  for (size_t slash = node.find('/'); slash != std::string::npos;
       slash = node.find('/', slash + 1)) {
    const std::string loop = node.substr(0, slash);
    names.push_back(hash_.of(loop));
    names.push_back(hash_.of(loop + "/while_context"));  // control flow of TensorFlow 1
  }
  for (const uint64_t name : names) single_.push_back(hash_.combine(0, hash_.combine(0, name)));
  for (size_t i = 0; i < names.size(); ++i) {
    for (size_t j = i + 1; j < names.size(); ++j) nested_.push_back({single_[i], names[j]});
  }
}

std::string LoopFrames::TextOf(uint64_t frame, int64_t iteration) {
  // Kernels outside the executor have no frame; TensorFlow says so with all bits set.
  constexpr uint64_t kNoFrame = ~uint64_t{0};
  if (frame == 0 || frame == kNoFrame) return "";
  const std::string turn = std::to_string(iteration);
  if (std::find(single_.begin(), single_.end(), frame) != single_.end()) return "@" + turn;
  std::lock_guard<std::mutex> lock(mutex_);
  const int64_t outer = OuterTurn(frame);
  return "@" + (outer >= 0 ? std::to_string(outer) : "#" + std::to_string(frame)) + ":" + turn;
}

bool LoopFrames::IsAt(const Nested& loops, int64_t turn, uint64_t frame) const {
  const auto number = static_cast<uint64_t>(turn);
  return hash_.combine(loops.outer, hash_.combine(number, loops.inner)) == frame;
}

int64_t LoopFrames::OuterTurn(uint64_t frame) {
  // Most often it is the last one, or near.  What is found does not depend on where that was.
  const auto find = [&](int64_t begin, int64_t end) -> int64_t {
    for (int64_t turn = begin; turn < end; ++turn) {
      for (const Nested loops : nested_) {
        if (!IsAt(loops, turn, frame)) continue;
        nested_ = {loops};
        last_ = turn;
        return turn;
      }
    }
    return -1;
  };
  const int64_t near = find(last_, std::min(last_ + 64, kMostTurns));
  const int64_t found = near >= 0 ? near : find(0, kMostTurns);
  // A node is always as deep as it is once: do not search again.
  if (found < 0 && nested_.size() > 1) nested_.clear();
  return found;
}

}  // namespace hvd_tf
