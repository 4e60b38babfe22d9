// The frames of the control channel, and their encoding.
//
// Every frame is {type, generation} and a body; a frame of another generation is not
// for us and is dropped.  Decoding never believes a length (base/wire.h).
//
// Threads: pure functions.

#ifndef TF_OPS_COORDINATOR_MESSAGE_H_
#define TF_OPS_COORDINATOR_MESSAGE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tf_ops/base/status.h"
#include "tf_ops/collectives/signature.h"

namespace hvd {

enum class FrameType : uint8_t {
  kAnnouncements = 0,    // rank -> coordinator
  kResponses = 1,        // coordinator -> rank
  kGoodbye = 2,          // rank -> coordinator: it ends in order
  kFarewell = 3,         // coordinator -> rank that said goodbye: nothing more will come
  kCoordinatorLeft = 4,  // coordinator -> rank: it ends in order
  kAbort = 5,            // either way: the job is lost, and why
  kHeartbeat = 6,        // either way
};
inline constexpr int kNumFrameTypes = 7;

// What one rank tells about one tensor.
struct Announcement {
  enum class What : uint8_t {
    kReady = 0,     // `signature` says all
    kRefused = 1,   // this rank found its request wrong; it has told its own caller
    kWithdrawn = 2  // this rank's caller cancelled
  };
  static constexpr int kNumWhats = 3;
  What what = What::kReady;
  Signature signature;  // of a refused or withdrawn tensor: name, set and kind
  std::string reason;   // of a refusal or withdrawal
};

// One entry of the ordered stream: run these tensors together, or fail them.
//
// Self-contained: a rank that never saw the tensors could take part.
struct Response {
  uint64_t sequence = 0;
  Status status;                   // not ok: all `tensors` end with it
  std::vector<Signature> tensors;  // as the first rank of the set announced them
  // The first dimension on each member, one list per tensor; empty for scalars.
  std::vector<std::vector<int64_t>> rows;
};

struct Frame {
  FrameType type = FrameType::kHeartbeat;
  uint64_t generation = 0;
  std::vector<Announcement> announcements;
  std::vector<Response> responses;
  Status status;  // kAbort
};

std::string Encode(const Frame& frame);

// False: not a frame of ours.
bool Decode(const std::string& bytes, Frame* frame);

}  // namespace hvd

#endif  // TF_OPS_COORDINATOR_MESSAGE_H_
