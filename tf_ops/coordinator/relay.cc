#include "tf_ops/coordinator/relay.h"

#include <algorithm>
#include <utility>

namespace hvd {

void Relay::Hear(int peer, std::vector<Report> reports, Time now) {
  const int port = ports_.PortOf(peer);
  for (Report& report : reports) {
    if (report.what == Report::What::kSubtreeReady) {
      for (const CachedReady& ready : report.ready) HearReady(port, ready, now);
      continue;
    }
    // Of one tensor, what came first goes up first.
    for (const CachedReady& ready : report.ready) Release(ready.id);
    const Signature& s = report.announcement.signature;
    if (report.what == Report::What::kAnnouncement) Release(cache_.IdOf(s.process_set, s.name));
    up_.push_back(std::move(report));
  }
}

void Relay::HearReady(int port, const CachedReady& ready, Time now) {
  const auto signature = cache_.Find(ready.id);
  // It was evicted while the report was on its way: its ranks will report it again.
  if (signature == nullptr) return;
  const int set = signature->process_set;
  if (ports_.Used(set) == 1) return Up(Report::What::kSubtreeReady, world_.rank, ready);

  auto it = held_.try_emplace(ready.id, ports_, set, now).first;
  if (it->second.came(port)) {
    Release(ready.id);
    it = held_.try_emplace(ready.id, ports_, set, now).first;
  }
  it->second.Come(port, ready.sizes);
  if (it->second.complete()) {
    CachedReady all{ready.id, it->second.AllSizes()};
    held_.erase(it);
    Up(Report::What::kSubtreeReady, world_.rank, std::move(all));
  } else if (left_[set]) {
    Release(ready.id);
  }
}

void Relay::Release(CacheId id) {
  const auto it = held_.find(id);
  if (it == held_.end()) return;
  it->second.ForRanks([&](int rank, std::vector<int64_t> sizes) {
    Up(Report::What::kRankReady, rank, {id, std::move(sizes)});
  });
  held_.erase(it);
}

void Relay::Up(Report::What what, int rank, CachedReady ready) {
  if (up_.empty() || up_.back().what != what || up_.back().rank != rank) {
    up_.push_back({what, rank, {}, {}});
  }
  up_.back().ready.push_back(std::move(ready));
}

std::vector<Report> Relay::Take(Time now) {
  std::vector<CacheId> due;
  for (const auto& [id, gathering] : held_) {
    if (now - gathering.since() >= kMostHeld) due.push_back(id);
  }
  for (CacheId id : due) Release(id);
  return std::exchange(up_, {});
}

std::optional<Relay::Time> Relay::next_time() const {
  std::optional<Time> first;
  for (const auto& item : held_) {
    const Time due = item.second.since() + kMostHeld;
    if (!first || due < *first) first = due;
  }
  return first;
}

void Relay::Leave(int rank) {
  for (size_t set = 0; set < world_.process_sets.size(); ++set) {
    const std::vector<int>& members = world_.process_sets[set];
    if (std::binary_search(members.begin(), members.end(), rank)) left_[set] = true;
  }
  std::vector<CacheId> lacking;
  for (const auto& item : held_) {
    if (left_[cache_.Find(item.first)->process_set]) lacking.push_back(item.first);
  }
  for (CacheId id : lacking) Release(id);
}

void Relay::Pass(const Response& response) {
  for (CacheId id : response.evicted) held_.erase(id);
}

bool Relay::IsFor(const Response& response, int port) const {
  const std::vector<int>& members = ports_.Members(response.process_set, port);
  if (response.only.empty()) return !members.empty();
  return std::any_of(response.only.begin(), response.only.end(), [&](int rank) {
    return std::binary_search(members.begin(), members.end(), rank);
  });
}

}  // namespace hvd
