#include "tf_ops/adapters/tf/loop_frames.h"

#include <gtest/gtest.h>

#include <functional>

namespace hvd_tf {
namespace {

int combined = 0;

uint64_t Of(const std::string& loop) { return std::hash<std::string>()(loop); }
// As TensorFlow's Hash64Combine.
uint64_t Combine(uint64_t a, uint64_t b) {
  ++combined;
  return a ^ (b + 0x9e3779b97f4a7800u + (a << 10) + (a >> 4));
}
constexpr FrameHash kHash = {Of, Combine};

// As TensorFlow numbers the frame of `loop` that turn `turn` of the frame `outer` enters.
uint64_t FrameIn(uint64_t outer, int64_t turn, const std::string& loop) {
  return Combine(outer, Combine(static_cast<uint64_t>(turn), Of(loop)));
}

TEST(LoopFrames, OutsideOfLoopsThereIsNothing) {
  const LoopFrames frames("a/x", kHash);
  EXPECT_EQ(frames.TextOf(0, 0), "");
  EXPECT_EQ(frames.TextOf(~uint64_t{0}, 5), "");
}

TEST(LoopFrames, ALoopIsItsTurnWhateverItsNameCounts) {
  for (const char* loop : {"while", "choice/_7/while", "a/while/while_context"}) {
    const std::string node = std::string(loop).substr(0, std::string(loop).find("/while_context"));
    const LoopFrames frames(node + "/body/_3/x", kHash);
    EXPECT_EQ(frames.TextOf(FrameIn(0, 0, loop), 4), "@4") << loop;
  }
}

TEST(LoopFrames, ALoopInALoopIsBothTurns) {
  for (const int64_t count : {5, 19, 1234}) {
    const std::string outer = "outer/_" + std::to_string(count) + "/while";
    const std::string inner = outer + "/body/_" + std::to_string(count + 1) + "/inner";
    const LoopFrames frames(inner + "/body/_9/x", kHash);
    for (int64_t turn : {0, 1, 3, 2, 15, 16, 1023, 1024, 5000, 1 << 20, (1 << 29) + 12345}) {
      for (const int64_t last = turn + 3; turn < last; ++turn) {
        EXPECT_EQ(frames.TextOf(FrameIn(FrameIn(0, 0, outer), turn, inner), 8),
                  "@" + std::to_string(turn) + ":8");
      }
    }
  }
}

TEST(LoopFrames, WhatCannotBeFoundIsTensorFlowsNumberAndTakesNoTime) {
  const LoopFrames deep("a/b/c/d/e/f/g/h/i/j/k/x", kHash);
  const LoopFrames shallow("abs/x", kHash);
  combined = 0;
  for (const int64_t turn : {2, 0, 1, 1 << 20}) {
    const uint64_t third = FrameIn(FrameIn(FrameIn(0, 0, "a"), 1, "a/b"), turn, "a/b/c");
    EXPECT_EQ(deep.TextOf(third, 3), "@#" + std::to_string(third) + ":3");
    const uint64_t other = FrameIn(0, turn, "elsewhere/while");
    EXPECT_EQ(shallow.TextOf(other, 3), "@#" + std::to_string(other) + ":3");
  }
  EXPECT_LT(combined, 100);
}

}  // namespace
}  // namespace hvd_tf
