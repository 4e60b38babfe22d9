// Topology: along which lines the ranks of a generation negotiate.
//
// Inside a host the lowest rank is the leader and the others speak to it alone; between
// hosts the leaders form a tree of bounded fan-in, whose root is rank 0.  So a rank hears
// one message per child, however many ranks there are below it.
//
// Threads: immutable once made.

#ifndef TF_OPS_TRANSPORT_TOPOLOGY_H_
#define TF_OPS_TRANSPORT_TOPOLOGY_H_

#include <string>
#include <vector>

namespace hvd {

class Topology {
 public:
  // Most hosts that one leader hears directly.
  static constexpr int kFanIn = 8;

  // `hosts`: the host of each rank, at least one.  Ranks of equal names share a host.
  explicit Topology(const std::vector<std::string>& hosts);

  int size() const { return static_cast<int>(nodes_.size()); }
  // The rank that `rank` reports to; -1 for rank 0.
  int parent(int rank) const { return nodes_[rank].parent; }
  // The ranks that report to `rank`, ascending.
  const std::vector<int>& children(int rank) const { return nodes_[rank].children; }
  // `rank` and all below it, ascending.
  const std::vector<int>& subtree(int rank) const { return nodes_[rank].subtree; }
  // The ranks of the host of `rank`, ascending; the first is its leader.
  const std::vector<int>& host(int rank) const { return host_ranks_[nodes_[rank].host]; }
  int num_hosts() const { return static_cast<int>(host_ranks_.size()); }
  bool same_host(int a, int b) const { return nodes_[a].host == nodes_[b].host; }
  // Children and parent, ascending: all that `rank` has a control connection to.
  std::vector<int> neighbors(int rank) const;

 private:
  struct Node {
    int host = 0;  // index into host_ranks_
    int parent = -1;
    std::vector<int> children;
    std::vector<int> subtree;
  };
  std::vector<Node> nodes_;                   // by rank
  std::vector<std::vector<int>> host_ranks_;  // in the order of their leaders
};

}  // namespace hvd

#endif  // TF_OPS_TRANSPORT_TOPOLOGY_H_
