// What a frame of init() is about: its first byte (tree_start.h).

#ifndef TF_OPS_TRANSPORT_NET_START_STEP_H_
#define TF_OPS_TRANSPORT_NET_START_STEP_H_

#include <cstdint>

namespace hvd {

enum class StartStep : uint8_t { kCame, kPart, kTaken, kReady, kWelcome, kGiveUp };
inline constexpr int kNumStartSteps = 6;

}  // namespace hvd

#endif  // TF_OPS_TRANSPORT_NET_START_STEP_H_
