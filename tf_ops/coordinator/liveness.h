// Liveness: heartbeats with those neighbors whose end does not show by itself.
//
// A neighbor that is not watched (ControlChannel::Watches) is asked for a sign of life four
// times within the time that it may be silent, and answers at once, however busy its program
// is.  Any frame is a sign.  Nobody is asked where everybody is watched.
//
// Pure: no clock.  Threads: the control thread.

#ifndef TF_OPS_COORDINATOR_LIVENESS_H_
#define TF_OPS_COORDINATOR_LIVENESS_H_

#include <map>
#include <optional>
#include <vector>

#include "tf_ops/base/deadline.h"

namespace hvd {

class Liveness {
 public:
  using Time = Clock::time_point;

  explicit Liveness(Clock::duration most_silent) : most_silent_(most_silent) {}

  // `peer` is not watched; it has been heard now.
  void Begin(int peer, Time now) { heard_[peer] = now; }
  void Heard(int peer, Time now) {
    if (const auto it = heard_.find(peer); it != heard_.end()) it->second = now;
  }
  // No sign of `peer` is needed any more.
  void End(int peer) { heard_.erase(peer); }
  void EndAll() { heard_.clear(); }

  // When Ask() is due; nullopt: nobody has to be asked.
  std::optional<Time> next_time() const {
    return heard_.empty() ? std::nullopt : std::optional<Time>(next_);
  }
  // The peers to ask now, if it is due.
  std::vector<int> Ask(Time now);
  // The peer that has been silent for too long, or -1.
  int Silent(Time now) const;

 private:
  const Clock::duration most_silent_;
  std::map<int, Time> heard_;  // by peer
  Time next_{};
};

}  // namespace hvd

#endif  // TF_OPS_COORDINATOR_LIVENESS_H_
