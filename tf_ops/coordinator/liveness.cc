#include "tf_ops/coordinator/liveness.h"

namespace hvd {

std::vector<int> Liveness::Ask(Time now) {
  std::vector<int> peers;
  if (heard_.empty() || now < next_) return peers;
  next_ = now + most_silent_ / 4;
  for (const auto& item : heard_) peers.push_back(item.first);
  return peers;
}

int Liveness::Silent(Time now) const {
  for (const auto& [peer, at] : heard_) {
    if (now - at > most_silent_) return peer;
  }
  return -1;
}

}  // namespace hvd
