// The frames of the control channel, and their encoding.
//
// Every frame is {type, generation} and a body; a frame of another generation is not
// for us and is dropped.  Decoding never believes a length (base/wire.h).
//
// Reports go up the tree of ranks (transport/topology.h) and responses down.  What was
// negotiated once has a number, its cache id: from then on a report of it is a bit in a set
// of ids, and a response names the id alone.
//
// Threads: pure functions.

#ifndef TF_OPS_COORDINATOR_MESSAGE_H_
#define TF_OPS_COORDINATOR_MESSAGE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tf_ops/base/status.h"
#include "tf_ops/collectives/signature.h"

namespace hvd {

enum class FrameType : uint8_t {
  kReports = 0,    // up
  kResponses = 1,  // down
  kGoodbye = 2,    // up: `rank` ends in order
  kFarewell = 3,   // down: `rank`, which said goodbye, will hear nothing more
  kCutOff = 4,     // down: `rank`, which is rank 0 or the way to it, ends in order
  kAbort = 5,      // both ways: the job is lost, and why
  kHeartbeat = 6,  // both ways: asks for a kAlive
  kAlive = 7,      // both ways
  kOver = 8,       // both ways: the sender runs nothing any more, and may end
};
inline constexpr int kNumFrameTypes = 9;

// What one rank tells about one tensor, in full.
struct Announcement {
  enum class What : uint8_t {
    kReady = 0,      // `signature` says all
    kRefused = 1,    // this rank found its request wrong; it has told its own caller
    kWithdrawn = 2,  // this rank's caller cancelled
    kDropped = 3     // a gradient's caller cancelled before it was announced
  };
  static constexpr int kNumWhats = 4;
  What what = What::kReady;
  Signature signature;  // of a refusal: name, set and kind alone are sure to be right
  std::string reason;   // of a refusal or withdrawal
};

// Numbers what was negotiated once.  Never used again in its generation; 0 is no id.
using CacheId = uint32_t;

// A tensor in the cache is ready.  `sizes`: the per-call sizes that are no part of the cached
// signature, of each rank told of, ascending; empty where the collective has none.
struct CachedReady {
  CacheId id = 0;
  std::vector<int64_t> sizes;
};

// One line on its way up.  Lines about one tensor keep their order.
struct Report {
  enum class What : uint8_t {
    kSubtreeReady = 0,  // `ready` on every rank of the sender's subtree that is in the set
    kRankReady = 1,     // `ready` on `rank`
    kAnnouncement = 2   // `announcement` of `rank`
  };
  static constexpr int kNumWhats = 3;
  What what = What::kSubtreeReady;
  int rank = 0;
  std::vector<CachedReady> ready;
  Announcement announcement;
};

// A request of a response: a tensor, or a group of them.
struct ResponseTensor {
  // Not 0 and `cache`: it is entered into the cache under this id.  Not 0 alone: it is there.
  CacheId id = 0;
  bool cache = false;
  // As the first rank of the set that takes part announced it.  Null while a frame that names
  // only the id has not been looked up.
  std::shared_ptr<const Signature> signature;
};

// One entry of the ordered stream: run these tensors together, or fail them.
//
// Self-contained together with the cache, which the stream alone changes: a rank that never
// saw the tensors could take part.
struct Response {
  uint64_t sequence = 0;
  int process_set = 0;
  std::vector<int> only;  // the ranks it is for, ascending; empty: all of the process set
  Status status;          // not ok: all `tensors` end with it
  std::vector<ResponseTensor> tensors;
  // SizesOf() of each member, one list per tensor; zeros of those in `absent`.
  std::vector<std::vector<int64_t>> sizes;
  // It runs without these ranks, which have joined; ascending.
  std::vector<int> absent;
  int divisor = 0;  // of an Average; 0: all members
  // These elements of the only request, its tensors seen as one array; count < 0: all of it.
  // The parts of one request come in order.
  int64_t part_begin = 0;
  int64_t part_count = -1;
  // Leave the cache here.  What was reported by them and not answered is reported again.
  std::vector<CacheId> evicted;

  // REQUIRES: the first tensor has been looked up.
  const Signature& first() const { return *tensors[0].signature; }
  bool is_last_part() const { return part_count < 0 || part_begin + part_count >= first().count(); }
};

struct Frame {
  FrameType type = FrameType::kHeartbeat;
  uint64_t generation = 0;
  std::vector<Report> reports;
  std::vector<Response> responses;
  int rank = 0;   // kGoodbye, kFarewell, kCutOff
  Status status;  // kAbort
};

std::string Encode(const Frame& frame);

// False: not a frame of ours.
bool Decode(const std::string& bytes, Frame* frame);

}  // namespace hvd

#endif  // TF_OPS_COORDINATOR_MESSAGE_H_
