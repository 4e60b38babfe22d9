#include "tf_ops/coordinator/ports.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace hvd {

Ports::Ports(const World& world, const ProcessSets& sets, const Topology& topology)
    : topology_(topology) {
  peers_.push_back(world.rank);
  for (int child : topology.children(world.rank)) peers_.push_back(child);
  for (int set = 0; set < sets.size(); ++set) AddSet(sets.members(set));
}

void Ports::AddSet(const std::vector<int>& members) {
  auto& by_port = members_.emplace_back(peers_.size());
  const std::vector<int> self = {peers_[0]};
  int used = 0;
  for (int port = 0; port < size(); ++port) {
    const std::vector<int>& behind = port == 0 ? self : topology_.subtree(peers_[port]);
    std::set_intersection(members.begin(), members.end(), behind.begin(), behind.end(),
                          std::back_inserter(by_port[port]));
    if (!by_port[port].empty()) ++used;
  }
  used_.push_back(used);
}

int Ports::PortOf(int peer) const {
  return static_cast<int>(std::find(peers_.begin(), peers_.end(), peer) - peers_.begin());
}

void Gathering::Come(int port, std::vector<int64_t> sizes) {
  if (came_.empty()) {
    came_of_few_ |= uint64_t{1} << port;
  } else {
    came_[port] = true;
  }
  if (!sizes.empty()) {
    sizes_.resize(ports_->size());
    sizes_[port] = std::move(sizes);
  }
  --missing_;
}

void Gathering::ForRanks(const std::function<void(int, std::vector<int64_t>)>& visit) const {
  static const std::vector<int64_t> kNone;
  for (int port = 0; port < ports_->size(); ++port) {
    if (!came(port)) continue;
    const std::vector<int>& members = ports_->Members(set_, port);
    const std::vector<int64_t>& sizes = sizes_.empty() ? kNone : sizes_[port];
    const size_t each = members.empty() ? 0 : sizes.size() / members.size();
    for (size_t m = 0; m < members.size(); ++m) {
      visit(members[m], {sizes.begin() + m * each, sizes.begin() + (m + 1) * each});
    }
  }
}

std::vector<int64_t> Gathering::AllSizes() const {
  if (sizes_.empty()) return {};
  std::vector<std::pair<int, std::vector<int64_t>>> by_rank;
  ForRanks([&](int rank, std::vector<int64_t> sizes) {
    if (!sizes.empty()) by_rank.emplace_back(rank, std::move(sizes));
  });
  std::sort(by_rank.begin(), by_rank.end());
  std::vector<int64_t> all;
  for (const auto& item : by_rank) all.insert(all.end(), item.second.begin(), item.second.end());
  return all;
}

}  // namespace hvd
