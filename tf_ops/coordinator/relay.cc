#include "tf_ops/coordinator/relay.h"

#include <algorithm>
#include <utility>

#include "tf_ops/collectives/collective.h"

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
    if (s.kind == Kind::kJoin && report.announcement.what == Announcement::What::kReady) {
      joined_[report.rank] = true;
      FindLacks();
    }
    up_.push_back(std::move(report));
  }
}

void Relay::HearReady(int port, const CachedReady& ready, Time now) {
  const auto signature = cache_.Find(ready.id);
  // It was evicted while the report was on its way: its ranks will report it again.
  if (signature == nullptr) return;
  const int set = signature->process_set;
  if (ports_.Used(set) == 1) return Up(Report::What::kSubtreeReady, world_.rank, ready);

  auto it = entries_.find(ready.id);
  if (it != entries_.end() && it->second.gathering.came(port)) {
    // Of the next time already: the others may have failed this one, and come again.
    Release(ready.id);
    entries_.erase(ready.id);
    it = entries_.end();
  }
  if (it == entries_.end()) {
    it = entries_.emplace(ready.id, Entry{Gathering(ports_, set, now)}).first;
  }
  Entry& entry = it->second;
  entry.gathering.Come(port, ready.sizes);
  if (!entry.held) {
    Gathering late(ports_, set, now);
    late.Come(port, ready.sizes);
    UpByRank(ready.id, late);
  } else if (entry.gathering.complete()) {
    Up(Report::What::kSubtreeReady, world_.rank, {ready.id, entry.gathering.AllSizes()});
  } else if (lacks_[set]) {
    Release(ready.id);
  }
  if (entry.gathering.complete()) entries_.erase(it);
}

void Relay::Release(CacheId id) {
  const auto it = entries_.find(id);
  if (it == entries_.end() || !std::exchange(it->second.held, false)) return;
  UpByRank(id, it->second.gathering);
}

void Relay::UpByRank(CacheId id, const Gathering& gathering) {
  gathering.ForRanks([&](int rank, std::vector<int64_t> sizes) {
    Up(Report::What::kRankReady, rank, {id, std::move(sizes)});
  });
}

void Relay::Up(Report::What what, int rank, CachedReady ready) {
  if (up_.empty() || up_.back().what != what || up_.back().rank != rank) {
    up_.push_back({what, rank, {}, {}});
  }
  up_.back().ready.push_back(std::move(ready));
}

std::vector<Report> Relay::Take(Time now) {
  std::vector<CacheId> due;
  for (const auto& [id, entry] : entries_) {
    if (entry.held && now - entry.gathering.since() >= kMostHeld) due.push_back(id);
  }
  for (CacheId id : due) Release(id);
  return std::exchange(up_, {});
}

std::optional<Relay::Time> Relay::next_time() const {
  std::optional<Time> first;
  for (const auto& [id, entry] : entries_) {
    if (!entry.held) continue;
    const Time due = entry.gathering.since() + kMostHeld;
    if (!first || due < *first) first = due;
  }
  return first;
}

void Relay::Leave(int rank) {
  left_[rank] = true;
  FindLacks();
}

void Relay::FindLacks() {
  lacks_.resize(sets_.size());
  for (size_t set = 0; set < lacks_.size(); ++set) {
    const std::vector<int>& members = sets_.members(static_cast<int>(set));
    lacks_[set] = std::any_of(members.begin(), members.end(),
                              [this](int rank) { return left_[rank] || joined_[rank]; });
  }
  std::vector<CacheId> lacking;
  for (const auto& item : entries_) {
    const auto signature = cache_.Find(item.first);
    // Null: a response that follows at once evicts it.
    if (signature != nullptr && lacks_[signature->process_set]) lacking.push_back(item.first);
  }
  for (CacheId id : lacking) Release(id);
}

void Relay::Pass(const Response& response) {
  for (CacheId id : response.evicted) entries_.erase(id);
  if (response.tensors.empty() || !FindCollective(response.first().kind)->answered()) return;
  if (response.first().kind == Kind::kJoin) {
    if (response.status.ok()) joined_.assign(joined_.size(), false);
    for (int rank : response.only) joined_[rank] = false;
  }
  FindLacks();
}

bool Relay::IsFor(const Response& response, int port) const {
  const std::vector<int>& members = ports_.Members(response.process_set, port);
  if (response.only.empty()) return !members.empty();
  return std::any_of(response.only.begin(), response.only.end(), [&](int rank) {
    return std::binary_search(members.begin(), members.end(), rank);
  });
}

}  // namespace hvd
