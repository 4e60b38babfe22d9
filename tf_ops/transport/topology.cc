#include "tf_ops/transport/topology.h"

#include <algorithm>
#include <map>

namespace hvd {

Topology::Topology(const std::vector<std::string>& hosts) : nodes_(hosts.size()) {
  std::map<std::string, int> index;
  for (size_t r = 0; r < hosts.size(); ++r) {
    const auto [it, fresh] = index.emplace(hosts[r], static_cast<int>(host_ranks_.size()));
    if (fresh) host_ranks_.emplace_back();
    nodes_[r].host = it->second;
    host_ranks_[it->second].push_back(static_cast<int>(r));
  }
  for (int h = 0; h < num_hosts(); ++h) {
    const int leader = host_ranks_[h][0];
    if (h > 0) nodes_[leader].parent = host_ranks_[(h - 1) / kFanIn][0];
    for (int r : host_ranks_[h]) {
      if (r != leader) nodes_[r].parent = leader;
    }
  }
  // Host h is below (h - 1) / kFanIn, so going down, everything below comes first.
  for (int h = num_hosts() - 1; h >= 0; --h) {
    for (auto it = host_ranks_[h].rbegin(); it != host_ranks_[h].rend(); ++it) {
      Node& node = nodes_[*it];
      node.subtree.push_back(*it);
      std::sort(node.subtree.begin(), node.subtree.end());
      std::sort(node.children.begin(), node.children.end());
      if (node.parent < 0) continue;
      Node& parent = nodes_[node.parent];
      parent.children.push_back(*it);
      parent.subtree.insert(parent.subtree.end(), node.subtree.begin(), node.subtree.end());
    }
  }
}

std::vector<int> Topology::neighbors(int rank) const {
  std::vector<int> all = children(rank);
  if (parent(rank) >= 0) all.push_back(parent(rank));
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace hvd
