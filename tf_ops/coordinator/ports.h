// Ports and Gathering: how a rank counts what comes from below it in the tree of ranks.
//
// A port is one direction from which reports come: this rank itself (port 0), or a child and
// all below it (ports 1, 2, ... in the order of Topology::children).
//
// Threads: the control thread.

#ifndef TF_OPS_COORDINATOR_PORTS_H_
#define TF_OPS_COORDINATOR_PORTS_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "tf_ops/base/deadline.h"
#include "tf_ops/transport/process_sets.h"
#include "tf_ops/transport/topology.h"
#include "tf_ops/transport/world.h"

namespace hvd {

class Ports {
 public:
  // `topology` outlives this object.
  Ports(const World& world, const ProcessSets& sets, const Topology& topology);

  // The next set.
  void AddSet(const std::vector<int>& members);

  int size() const { return static_cast<int>(peers_.size()); }
  int peer(int port) const { return peers_[port]; }
  // REQUIRES: `peer` is this rank or a child.
  int PortOf(int peer) const;
  // The ranks of `set` behind `port`, ascending.
  const std::vector<int>& Members(int set, int port) const { return members_[set][port]; }
  // How many ports have members of `set`.
  int Used(int set) const { return used_[set]; }

 private:
  const Topology& topology_;
  std::vector<int> peers_;
  std::vector<std::vector<std::vector<int>>> members_;  // by set, by port
  std::vector<int> used_;                               // by set
};

// One cached tensor on its way to be ready on all ranks of its set at and below this one.
class Gathering {
 public:
  using Time = Clock::time_point;

  Gathering(const Ports& ports, int set, Time now)
      : ports_(&ports), set_(set), since_(now), missing_(ports.Used(set)) {
    if (ports.size() > kFewPorts) came_.resize(ports.size());
  }

  bool came(int port) const {
    return came_.empty() ? (came_of_few_ >> port & 1) != 0 : static_cast<bool>(came_[port]);
  }
  bool complete() const { return missing_ == 0; }
  Time since() const { return since_; }

  // `sizes`: the per-call sizes of the members behind `port`, in their order.
  // REQUIRES: it has not come yet.
  void Come(int port, std::vector<int64_t> sizes);

  // Calls visit(rank, its sizes) for each rank that came, port by port.
  void ForRanks(const std::function<void(int, std::vector<int64_t>)>& visit) const;

  // The sizes of all that came, by rank.
  std::vector<int64_t> AllSizes() const;

 private:
  const Ports* ports_;
  int set_;
  Time since_;
  int missing_;  // ports
  // By port; where they are few, as bits, since there is a gathering for each call of a tensor.
  static constexpr int kFewPorts = 64;
  uint64_t came_of_few_ = 0;
  std::vector<bool> came_;
  std::vector<std::vector<int64_t>> sizes_;  // by port; empty: none has any
};

}  // namespace hvd

#endif  // TF_OPS_COORDINATOR_PORTS_H_
