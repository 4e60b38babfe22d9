#include "tf_ops/coordinator/frame_check.h"

#include <algorithm>

#include "tf_ops/base/strings.h"

namespace hvd {
namespace {

bool Goes(FrameType type, bool up) {
  switch (type) {
    case FrameType::kReports:
    case FrameType::kGoodbye:
      return up;
    case FrameType::kResponses:
    case FrameType::kFarewell:
    case FrameType::kCutOff:
      return !up;
    case FrameType::kAbort:
    case FrameType::kHeartbeat:
      return true;
  }
  return false;
}

Status Bad(const World& world, int peer, const std::string& what) {
  return Status::Internal(
      StrCat(world.RankText(peer), " sent ", what, "; do all ranks run the same version?"));
}

}  // namespace

Status CheckFrame(const World& world, const Topology& topology, int peer, const Frame& frame) {
  // Rank 0 has no parent, so all that it hears comes from below.
  const bool up = topology.parent(world.rank) != peer;
  const int type = static_cast<int>(frame.type);
  if (!Goes(frame.type, up)) {
    return Bad(world, peer, StrCat("a frame of type ", type, " the wrong way"));
  }
  const auto speaks_of = [&](int rank) {
    if (!up) return rank >= 0 && rank < world.size;
    const std::vector<int>& below = topology.subtree(peer);
    return std::binary_search(below.begin(), below.end(), rank);
  };
  bool fits = true;
  if (frame.type == FrameType::kGoodbye || frame.type == FrameType::kFarewell ||
      frame.type == FrameType::kCutOff) {
    fits = speaks_of(frame.rank);
  }
  for (const Report& report : frame.reports) fits = fits && speaks_of(report.rank);
  for (const Response& response : frame.responses) {
    fits = fits && response.process_set >= 0 &&
           response.process_set < static_cast<int>(world.process_sets.size());
    for (int rank : response.only) fits = fits && speaks_of(rank);
  }
  return fits ? Status::Ok()
              : Bad(world, peer,
                    StrCat("a frame of type ", type,
                           " that names a rank or process "
                           "set that it cannot speak for"));
}

}  // namespace hvd
