#include "tf_ops/coordinator/negotiator.h"

#include <algorithm>
#include <utility>

#include "tf_ops/collectives/collective.h"
#include "tf_ops/fusion/plan.h"

namespace hvd {
namespace {

int64_t WholeSeconds(Clock::duration d) {
  return std::chrono::duration_cast<std::chrono::seconds>(d).count();
}

}  // namespace

Negotiator::Negotiator(const World& world, const Config& config)
    : world_(world), config_(config), left_(world.size, false), last_(world.size) {}

void Negotiator::Hear(int rank, const Announcement& announcement, Time now) {
  const Signature& s = announcement.signature;
  if (s.process_set < 0 || s.process_set >= static_cast<int>(world_.process_sets.size())) return;
  const std::vector<int>& set = members(s.process_set);
  const auto it = std::lower_bound(set.begin(), set.end(), rank);
  if (it == set.end() || *it != rank) return;  // Validate() stops this on the rank itself
  const size_t member = it - set.begin();
  const Key key{s.process_set, s.name};
  last_heard_ = now;
  last_[rank] = s.Title();

  if (announcement.what == Announcement::What::kWithdrawn) {
    // Too late when it is in the stream already: then it finishes.
    const auto found = entries_.find(key);
    if (found == entries_.end()) return;
    for (Entry& entry : found->second) {
      if (!entry.waiting[member].has_value()) continue;
      // To the one who withdrew it is a cancellation, to the others a failure.
      errors_.push_back(
          {{0, Status::Cancelled(StrCat(s.Title(), ": cancelled")), {s}, {}}, {rank}});
      entry.waiting[member].reset();
      Fail(key, &entry,
           {Status::FailedPrecondition(StrCat(s.Title(), ": ", world_.RankText(rank),
                                              " withdrew it: ", announcement.reason,
                                              "; look for the first error on that rank"))});
      break;
    }
    DropFinished(key);
    return;
  }

  Entry& entry = EntryFor(key, member, now);
  entry.came[member] = true;
  if (announcement.what == Announcement::What::kRefused) {
    if (!entry.failed) {
      Fail(key, &entry,
           {Status::FailedPrecondition(StrCat(s.Title(), ": ", world_.RankText(rank),
                                              " could not take part: ", announcement.reason))});
    }
  } else {
    entry.waiting[member] = s;
    if (entry.failed) {
      Tell(key, &entry, member);
    } else if (AllCame(key, entry)) {
      Decide(key, &entry);
    }
  }
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
    if (left_[rank] && !entry.failed) entry.failed = Failure{Status::Ok(), rank};
  }
  return entry;
}

void Negotiator::Decide(const Key& key, Entry* entry) {
  const std::vector<int>& set = members(key.first);
  const Signature& first = *entry->waiting[0];
  for (size_t i = 1; i < set.size(); ++i) {
    Status status = Agree(*entry->waiting[i], set[i], first, set[0]);
    if (!status.ok()) return Fail(key, entry, {std::move(status)});
  }
  Response response;
  response.tensors.push_back(first);
  response.rows.emplace_back();
  if (FindCollective(first.kind)->uneven_rows) {
    for (const auto& s : entry->waiting) response.rows[0].push_back(s->shape[0]);
  }
  ready_.push_back(std::move(response));
}

void Negotiator::Fail(const Key& key, Entry* entry, Failure failure) {
  entry->failed = std::move(failure);
  for (size_t m = 0; m < entry->waiting.size(); ++m) {
    if (entry->waiting[m].has_value()) Tell(key, entry, m);
  }
}

void Negotiator::Tell(const Key& key, Entry* entry, size_t member) {
  const Signature& s = *entry->waiting[member];
  const Failure& failure = *entry->failed;
  Outgoing out;
  out.response.status = failure.left_rank >= 0 ? LeftStatus(failure.left_rank, s) : failure.status;
  out.response.tensors.push_back(s);
  out.recipients.push_back(members(key.first)[member]);
  errors_.push_back(std::move(out));
  entry->waiting[member].reset();
}

Status Negotiator::LeftStatus(int rank, const Signature& s) const {
  const std::string text =
      StrCat(s.Title(), ": ", world_.RankText(rank),
             " ended in order and will not take part; give every rank as many steps, or stop them "
             "all at the same one");
  return s.gradient ? Status::OutOfRange(text) : Status::Shutdown(text);
}

bool Negotiator::AllCame(const Key& key, const Entry& entry) const {
  return MissingRanks(key, entry).empty();
}

std::vector<int> Negotiator::MissingRanks(const Key& key, const Entry& entry) const {
  std::vector<int> missing;
  const std::vector<int>& set = members(key.first);
  for (size_t m = 0; m < set.size(); ++m) {
    if (!entry.came[m] && !left_[set[m]]) missing.push_back(set[m]);
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

void Negotiator::Leave(int rank) {
  left_[rank] = true;
  std::vector<Key> keys;
  for (auto& [key, queue] : entries_) {
    const std::vector<int>& set = members(key.first);
    if (!std::binary_search(set.begin(), set.end(), rank)) continue;
    for (Entry& entry : queue) {
      if (!entry.failed) Fail(key, &entry, {Status::Ok(), rank});
    }
    keys.push_back(key);
  }
  for (const Key& key : keys) DropFinished(key);
}

std::vector<Negotiator::Outgoing> Negotiator::Flush() {
  std::vector<Outgoing> out = std::move(errors_);
  errors_.clear();
  std::vector<const Signature*> signatures;
  for (const Response& r : ready_) signatures.push_back(&r.tensors[0]);
  for (const auto& bucket : PlanBuckets(signatures, config_.fusion_threshold_bytes)) {
    Outgoing fused;
    for (size_t i : bucket) {
      fused.response.tensors.push_back(std::move(ready_[i].tensors[0]));
      fused.response.rows.push_back(std::move(ready_[i].rows[0]));
    }
    fused.recipients = members(fused.response.tensors[0].process_set);
    out.push_back(std::move(fused));
  }
  ready_.clear();
  for (Outgoing& o : out) o.response.sequence = next_sequence_++;
  return out;
}

Status Negotiator::Inspect(Time now, std::vector<std::string>* warnings) {
  FailMismatches(now);
  if (!config_.stall_check_disable) WarnOfStalls(now, warnings);
  if (config_.stall_shutdown_time_s <= 0) return Status::Ok();
  for (const auto& [key, queue] : entries_) {
    for (const Entry& entry : queue) {
      if (entry.failed || now - entry.since < Seconds(config_.stall_shutdown_time_s)) continue;
      return Status::DeadlineExceeded(
          StrCat("'", key.second, "' has waited ", WholeSeconds(now - entry.since), " s for ",
                 RanksText(MissingRanks(key, entry)),
                 " (HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=", config_.stall_shutdown_time_s, ")"));
    }
  }
  return Status::Ok();
}

void Negotiator::WarnOfStalls(Time now, std::vector<std::string>* warnings) {
  // One line per group of missing ranks, however many tensors wait for it.
  std::map<std::vector<int>, std::vector<std::string>> stalled;
  const Clock::duration patience = Seconds(config_.stall_check_time_s);
  Clock::duration longest{};
  for (auto& [key, queue] : entries_) {
    for (Entry& entry : queue) {
      if (entry.failed || now - entry.warned < patience) continue;
      entry.warned = now;
      longest = std::max(longest, now - entry.since);
      stalled[MissingRanks(key, entry)].push_back(StrCat("'", key.second, "'"));
    }
  }
  for (const auto& [missing, names] : stalled) {
    std::vector<std::string> doing;
    for (int rank : missing) {
      doing.push_back(StrCat(world_.RankText(rank),
                             " (last: ", last_[rank].empty() ? "nothing yet" : last_[rank], ")"));
    }
    warnings->push_back(StrCat("waiting for up to ", WholeSeconds(longest), " s: ", Join(names, 8),
                               " not yet called by ", Join(doing, 8),
                               "; those ranks live, so this is only a warning"));
  }
}

void Negotiator::FailMismatches(Time now) {
  if (entries_.empty() || now - last_heard_ < Seconds(config_.mismatch_time_s)) return;
  for (size_t set = 0; set < world_.process_sets.size(); ++set) {
    std::map<int, std::vector<std::string>> names;  // rank -> what it waits for
    std::vector<std::pair<Key, Entry*>> stuck;
    for (auto& [key, queue] : entries_) {
      if (key.first != static_cast<int>(set)) continue;
      for (Entry& entry : queue) {
        if (entry.failed) continue;
        stuck.push_back({key, &entry});
        for (size_t m = 0; m < entry.waiting.size(); ++m) {
          if (entry.waiting[m]) names[members(set)[m]].push_back(StrCat("'", key.second, "'"));
        }
      }
    }
    // A rank with nothing pending may still come: it is only slow.
    if (stuck.empty() || names.size() < members(set).size()) continue;
    std::vector<std::string> lines;
    for (const auto& [rank, waits] : names) {
      lines.push_back(StrCat("rank ", rank, " waits in ", Join(waits, 8)));
    }
    const Status status = Status::FailedPrecondition(
        StrCat("names that cannot match: no tensor is pending on all ranks of process set ", set,
               ", and nobody called for ", WholeSeconds(now - last_heard_), " s: ", Join(lines, 16),
               "; run the same collectives under the same names on all ranks"));
    for (auto& [key, entry] : stuck) {
      for (size_t m = 0; m < entry->came.size(); ++m) entry->came[m] = true;
      Fail(key, entry, {status});
    }
    for (auto& [key, entry] : stuck) DropFinished(key);
  }
}

}  // namespace hvd
