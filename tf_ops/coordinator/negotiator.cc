#include "tf_ops/coordinator/negotiator.h"

#include <algorithm>
#include <utility>

#include "tf_ops/collectives/collective.h"
#include "tf_ops/fusion/plan.h"

namespace hvd {

Negotiator::Negotiator(const World& world, const ProcessSets& sets, const Config& config,
                       const Ports& ports)
    : world_(world),
      sets_(sets),
      config_(config),
      ports_(ports),
      keeper_(config.cache_capacity),
      left_because_(world.size, -1),
      joined_(world.size, false),
      last_of_rank_(world.size) {
  closed_.resize(sets.size());
  last_of_set_.resize(sets.size());
  last_heard_.resize(sets.size());
  FindLacks();
}

void Negotiator::AddSet() {
  closed_.push_back(false);
  last_of_set_.emplace_back();
  last_heard_.emplace_back();
  FindLacks();
}

std::optional<size_t> Negotiator::MemberOf(int set, int rank) const {
  if (set < 0 || set >= static_cast<int>(closed_.size()) || closed_[set]) return std::nullopt;
  const std::vector<int>& ranks = members(set);
  const auto it = std::lower_bound(ranks.begin(), ranks.end(), rank);
  if (it == ranks.end() || *it != rank) return std::nullopt;
  return it - ranks.begin();
}

void Negotiator::Hear(int peer, const Report& report, Time now) {
  switch (report.what) {
    case Report::What::kSubtreeReady:
      for (const CachedReady& r : report.ready) HearReady(ports_.PortOf(peer), r, now);
      break;
    case Report::What::kRankReady:
      for (const CachedReady& r : report.ready) {
        const SignaturePtr signature = keeper_.cache().Find(r.id);
        if (signature == nullptr) continue;
        Expand(KeyOf(*signature));
        Come(report.rank, std::make_shared<const Signature>(WithSizes(*signature, r.sizes)), now);
      }
      break;
    case Report::What::kAnnouncement:
      HearAnnouncement(report.rank, report.announcement, now);
      break;
  }
}

void Negotiator::HearReady(int port, const CachedReady& ready, Time now) {
  const SignaturePtr signature = keeper_.cache().Find(ready.id);
  // It was evicted while the bit was on its way: its ranks will announce it in full.
  if (signature == nullptr) return;
  const int set = signature->process_set;
  if (closed_[set]) return;
  last_heard_[set] = now;
  auto it = gathering_.try_emplace(ready.id, ports_, set, now).first;
  const bool again = it->second.came(port);
  if (again) {
    Expand(KeyOf(*signature));
    it = gathering_.try_emplace(ready.id, ports_, set, now).first;
  }
  it->second.Come(port, ready.sizes);
  if (again || lacks_[set] > 0 || (!entries_.empty() && entries_.count(KeyOf(*signature)) > 0)) {
    return Expand(KeyOf(*signature));
  }
  if (!it->second.complete()) return;
  last_of_set_[set] = {signature, now};
  Push({signature, ready.id, it->second.AllSizes(), {}});
  gathering_.erase(it);
}

void Negotiator::ExpandAll() {
  std::vector<Key> keys;
  for (const auto& item : gathering_) keys.push_back(KeyOf(*keeper_.cache().Find(item.first)));
  for (const Key& key : keys) Expand(key);
}

void Negotiator::Expand(const Key& key) {
  const auto it = gathering_.find(keeper_.cache().IdOf(key.first, key.second));
  if (it == gathering_.end()) return;
  const Gathering gathering = std::move(it->second);
  const SignaturePtr signature = keeper_.cache().Find(it->first);
  gathering_.erase(it);
  gathering.ForRanks([&](int rank, const std::vector<int64_t>& sizes) {
    Come(rank, std::make_shared<const Signature>(WithSizes(*signature, sizes)), gathering.since());
  });
}

void Negotiator::HearAnnouncement(int rank, const Announcement& announcement, Time now) {
  const Signature& s = announcement.signature;
  // Validate() stops this on the rank itself; or the set goes.
  if (!MemberOf(s.process_set, rank)) return;
  Expand(KeyOf(s));
  switch (announcement.what) {
    case Announcement::What::kReady:
      return Come(rank, std::make_shared<const Signature>(s), now);
    case Announcement::What::kRefused:
      return Refuse(rank, announcement, now);
    case Announcement::What::kWithdrawn:
      return Withdraw(rank, announcement);
    case Announcement::What::kDropped:
      return Drop(rank, s);
  }
}

void Negotiator::Come(int rank, const SignaturePtr& signature, Time now) {
  const auto member = MemberOf(signature->process_set, rank);
  if (!member || left_because_[rank] >= 0) return;
  Last& last = last_of_rank_[rank];
  if (now >= last.at) last = {signature->Title(), now};
  last_heard_[signature->process_set] = std::max(last_heard_[signature->process_set], now);
  const Key key = KeyOf(*signature);
  Entry& entry = EntryFor(key, *member, now);
  entry.SetCame(*member, true);
  entry.waiting[*member] = signature;
  if (signature->kind == Kind::kJoin && !entry.failed) HearJoin(key, rank);
  if (entry.failed) {
    Tell(key, &entry, *member);
  } else if (AllCame(key, entry)) {
    Decide(key, &entry);
  }
  DropFinished(key);
}

void Negotiator::Refuse(int rank, const Announcement& announcement, Time now) {
  const Signature& s = announcement.signature;
  if (left_because_[rank] >= 0) return;
  last_of_rank_[rank] = {s.Title(), now};
  last_heard_[s.process_set] = now;
  const Key key = KeyOf(s);
  const size_t member = *MemberOf(s.process_set, rank);
  Entry& entry = EntryFor(key, member, now);
  entry.SetCame(member, true);
  if (!entry.failed) {
    Fail(key, &entry,
         {Status::FailedPrecondition(StrCat(s.Title(), ": ", world_.RankText(rank),
                                            " could not take part: ", announcement.reason))});
  }
  DropFinished(key);
}

void Negotiator::Withdraw(int rank, const Announcement& announcement) {
  const Signature& s = announcement.signature;
  const Key key = KeyOf(s);
  const size_t member = *MemberOf(s.process_set, rank);
  // Too late when it is in the stream already: then it finishes.
  const auto found = entries_.find(key);
  if (found == entries_.end()) return;
  std::deque<Entry>& queue = found->second;
  for (auto it = queue.begin(); it != queue.end(); ++it) {
    Entry& entry = *it;
    if (entry.waiting[member] == nullptr) continue;
    const bool gradient = entry.waiting[member]->gradient;
    // To the one who withdrew it is a cancellation, to the others a failure.
    Response cancelled;
    cancelled.process_set = s.process_set;
    cancelled.only = {rank};
    cancelled.status = Status::Cancelled(StrCat(s.Title(), ": cancelled"));
    cancelled.tensors.push_back({0, false, std::exchange(entry.waiting[member], nullptr)});
    if (s.kind == Kind::kJoin) TakeBackJoin(rank);
    errors_.push_back(std::move(cancelled));
    if (gradient) {
      entry.SetCame(member, false);
      if (entry.num_came == 0) queue.erase(it);
      break;
    }
    Fail(key, &entry,
         {Status::FailedPrecondition(StrCat(s.Title(), ": ", world_.RankText(rank),
                                            " withdrew it: ", announcement.reason,
                                            "; look for the first error on that rank"))});
    break;
  }
  DropFinished(key);
}

void Negotiator::Drop(int rank, const Signature& signature) {
  const Key key = KeyOf(signature);
  const size_t member = *MemberOf(signature.process_set, rank);
  const auto found = entries_.find(key);
  if (found == entries_.end()) return;
  const auto next = std::find_if(found->second.begin(), found->second.end(),
                                 [member](const Entry& entry) { return !entry.came[member]; });
  if (next != found->second.end() && next->failed) next->SetCame(member, true);
  DropFinished(key);
}

Negotiator::Entry& Negotiator::EntryFor(const Key& key, size_t member, Time now) {
  std::deque<Entry>& queue = entries_[key];
  for (Entry& entry : queue) {
    if (!entry.came[member]) return entry;
  }
  const std::vector<int>& set = members(key.first);
  Entry& entry = queue.emplace_back();
  entry.came.resize(set.size());
  entry.waiting.resize(set.size());
  entry.since = entry.warned = now;
  for (int rank : set) {
    if (left_because_[rank] >= 0 && !entry.failed) entry.failed = Failure{Status::Ok(), rank};
  }
  return entry;
}

void Negotiator::Fail(const Key& key, Entry* entry, Failure failure) {
  entry->failed = std::move(failure);
  for (size_t m = 0; m < entry->waiting.size(); ++m) {
    if (entry->waiting[m] != nullptr) Tell(key, entry, m);
  }
}

void Negotiator::Tell(const Key& key, Entry* entry, size_t member) {
  const SignaturePtr s = std::exchange(entry->waiting[member], nullptr);
  const Failure& failure = *entry->failed;
  if (s->kind == Kind::kJoin) TakeBackJoin(members(key.first)[member]);
  Response out;
  out.process_set = key.first;
  out.only = {members(key.first)[member]};
  out.status = failure.left_rank >= 0 ? LeftStatus(failure.left_rank, *s) : failure.status;
  out.tensors.push_back({0, false, s});
  errors_.push_back(std::move(out));
}

Status Negotiator::LeftStatus(int rank, const Signature& s) const {
  const int because = left_because_[rank];
  std::string text = StrCat(s.Title(), ": ", world_.RankText(because), " ended in order and ");
  text += because == rank
              ? "will not take part"
              : StrCat("with it the way to ", world_.RankText(rank), ", which it spoke for");
  text += s.gradient ? "; give every rank as many steps, or stop them all at the same one"
                     : "; call it on every rank, as often on one as on another";
  return s.gradient ? Status::OutOfRange(text) : Status::Shutdown(text);
}

bool Negotiator::AllCame(const Key& key, const Entry& entry) const {
  // Mostly some are missing; to know which takes longer the larger the set is.
  if (entry.num_came + lacks_[key.first] < entry.came.size()) return false;
  return MissingRanks(key, entry).empty();
}

std::vector<int> Negotiator::MissingRanks(const Key& key, const Entry& entry) const {
  std::vector<int> missing;
  const std::vector<int>& set = members(key.first);
  for (size_t m = 0; m < set.size(); ++m) {
    const bool gone = left_because_[set[m]] >= 0 || joined_[set[m]];
    if (!entry.came[m] && !gone) missing.push_back(set[m]);
  }
  return missing;
}

void Negotiator::DropFinished(const Key& key) {
  const auto it = entries_.find(key);
  if (it == entries_.end()) return;
  std::deque<Entry>& queue = it->second;
  while (!queue.empty() && AllCame(key, queue.front())) queue.pop_front();
  if (queue.empty()) entries_.erase(it);
}

void Negotiator::Leave(int rank, int because) {
  if (left_because_[rank] >= 0) return;
  ExpandAll();  // while the rank still counts
  std::vector<Key> keys;
  left_because_[rank] = because;
  FindLacks();
  for (auto& [key, queue] : entries_) {
    if (!MemberOf(key.first, rank)) continue;
    for (Entry& entry : queue) {
      if (!entry.failed) Fail(key, &entry, {Status::Ok(), rank});
    }
    keys.push_back(key);
  }
  for (const Key& key : keys) DropFinished(key);
}

std::vector<Response> Negotiator::Flush() {
  std::vector<Response> out = std::exchange(errors_, {});
  std::vector<Decided> rest;
  for (auto& indices : PlanDecided()) {
    std::vector<Decided> bucket;
    for (size_t i : indices) bucket.push_back(std::move(decided_[i]));
    if (MustWait(bucket[0], rest)) {
      rest.push_back(std::move(bucket[0]));
      continue;
    }
    Emit(&bucket, &out);
    Decided& last = bucket.back();
    last.part_begin += PartCount(*last.signature, config_.fusion_threshold_bytes);
    if (last.part_begin < last.signature->count()) {
      rest.push_back(std::move(last));
      bucket.pop_back();
    }
    for (const Decided& d : bucket) decided_ids_.erase(d.id);
  }
  decided_ = std::move(rest);
  for (Response& response : out) response.sequence = next_sequence_++;
  return out;
}

std::vector<std::vector<size_t>> Negotiator::PlanDecided() const {
  std::vector<std::vector<size_t>> buckets;
  // Only what runs on the same ranks can share a bucket.
  for (size_t begin = 0, end = 0; begin < decided_.size(); begin = end) {
    std::vector<const Signature*> run;
    for (; end < decided_.size() && decided_[end].absent == decided_[begin].absent; ++end) {
      run.push_back(decided_[end].signature.get());
    }
    for (auto& bucket :
         PlanBuckets(run, config_.fusion_threshold_bytes, !config_.disable_group_fusion)) {
      for (size_t& i : bucket) i += begin;
      buckets.push_back(std::move(bucket));
    }
  }
  return buckets;
}

std::vector<Response> Negotiator::FlushAll() {
  std::vector<Response> out;
  while (has_output()) {
    for (Response& response : Flush()) out.push_back(std::move(response));
  }
  return out;
}

void Negotiator::Push(Decided decided) {
  Place(&decided, decided.id);
  decided_.push_back(std::move(decided));
}

void Negotiator::Place(Decided* decided, CacheId id) {
  if (decided->id != id) decided_ids_.erase(decided->id);
  decided->id = id;
  if (id != 0) decided_ids_.insert(id);
}

void Negotiator::Emit(std::vector<Decided>* emitted, std::vector<Response>* out) {
  std::vector<Decided>& bucket = *emitted;
  const auto is_busy = [this](CacheId id, const Signature& s) {
    return gathering_.count(id) > 0 || entries_.count(KeyOf(s)) > 0 || decided_ids_.count(id) > 0;
  };
  std::vector<CacheKeeper::Evicted> evicted;
  Response response;
  response.process_set = bucket[0].signature->process_set;
  response.tensors.reserve(bucket.size());
  response.sizes.reserve(bucket.size());
  for (Decided& d : bucket) {
    CacheKeeper::Place place;
    if (!FindCollective(d.signature->kind)->answered()) {
      place = keeper_.Use(d.signature, d.id, is_busy, &evicted);
      Place(&d, place.id);
    } else if (d.signature->kind == Kind::kRemoveProcessSet) {
      keeper_.EvictSet(d.signature->root, &evicted);
    }
    // What is cached is looked up by all, this rank included: its sizes are of another call.
    const bool known = place.id != 0 && !place.fresh;
    response.tensors.push_back(
        {place.id, place.fresh, known ? keeper_.cache().Find(place.id) : d.signature});
    response.sizes.push_back(d.sizes);
  }
  response.absent = bucket[0].absent;
  if (!response.absent.empty() && config_.join_average == kJoinAverageOfPresent) {
    response.divisor =
        static_cast<int>(members(response.process_set).size() - response.absent.size());
  }
  const Signature& first = *bucket[0].signature;
  const int64_t part = PartCount(first, config_.fusion_threshold_bytes);
  if (bucket.size() == 1 && part < first.count()) {
    response.part_begin = bucket[0].part_begin;
    response.part_count = std::min(part, first.count() - response.part_begin);
  }
  // What goes from the same set goes with the response.
  std::map<int, std::vector<CacheId>> others;
  for (const CacheKeeper::Evicted& e : evicted) {
    (e.process_set == response.process_set ? response.evicted : others[e.process_set])
        .push_back(e.id);
  }
  for (auto& [set, ids] : others) {
    Response eviction;
    eviction.process_set = set;
    eviction.evicted = std::move(ids);
    out->push_back(std::move(eviction));
  }
  out->push_back(std::move(response));
}

}  // namespace hvd
