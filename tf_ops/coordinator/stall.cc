// The part of Negotiator that looks at what waits too long: stalls, and names that can
// never match.

#include <algorithm>
#include <utility>

#include "tf_ops/coordinator/negotiator.h"

namespace hvd {
namespace {

// Bits that wait longer than this become entries, which know each rank.
constexpr auto kLongForABit = std::chrono::milliseconds(250);

int64_t WholeSeconds(Clock::duration d) {
  return std::chrono::duration_cast<std::chrono::seconds>(d).count();
}

}  // namespace

Status Negotiator::Inspect(Time now, std::vector<std::string>* warnings) {
  std::vector<Key> keys;
  for (const auto& [id, gathering] : gathering_) {
    if (now - gathering.since() >= kLongForABit) keys.push_back(KeyOf(*keeper_.cache().Find(id)));
  }
  for (const Key& key : keys) Expand(key);

  FailMismatches(now);
  if (!config_.stall_check_disable) WarnOfStalls(now, warnings);
  if (config_.stall_shutdown_time_s <= 0) return Status::Ok();
  for (const auto& [key, queue] : entries_) {
    for (const Entry& entry : queue) {
      const Clock::duration waited = now - WaitsSince(key, entry, entry.since);
      if (entry.failed || waited < Seconds(config_.stall_shutdown_time_s)) continue;
      return Status::DeadlineExceeded(
          StrCat(TitleOf(key, entry), " has waited ", WholeSeconds(waited), " s for ",
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
      if (entry.failed || now - WaitsSince(key, entry, entry.warned) < patience) continue;
      entry.warned = now;
      longest = std::max(longest, now - entry.since);
      stalled[MissingRanks(key, entry)].push_back(TitleOf(key, entry));
    }
  }
  for (const auto& [missing, names] : stalled) {
    std::vector<std::string> doing;
    for (int rank : missing) {
      doing.push_back(StrCat(world_.RankText(rank), " (", LastOf(rank), ")"));
    }
    warnings->push_back(StrCat(Join(names, 8), names.size() == 1 ? " has" : " have", " waited ",
                               WholeSeconds(longest), " s for ", Join(doing, 8),
                               "; those ranks live, so this is only a warning"));
  }
}

std::string Negotiator::TitleOf(const Key& key, const Entry& entry) {
  for (const SignaturePtr& s : entry.waiting) {
    if (s != nullptr) return s->Title();
  }
  return StrCat("'", key.second, "'");  // all who waited have withdrawn
}

Negotiator::Time Negotiator::WaitsSince(const Key& key, const Entry& entry, Time since) const {
  const bool joins =
      std::any_of(entry.waiting.begin(), entry.waiting.end(),
                  [](const SignaturePtr& s) { return s != nullptr && s->kind == Kind::kJoin; });
  return joins ? std::max(since, last_heard_[key.first]) : since;
}

std::string Negotiator::LastOf(int rank) const {
  std::string title = last_of_rank_[rank].title;
  Time at = last_of_rank_[rank].at;
  for (size_t set = 0; set < last_of_set_.size(); ++set) {
    const auto& [signature, when] = last_of_set_[set];
    if (signature == nullptr || when < at || !MemberOf(static_cast<int>(set), rank)) continue;
    title = signature->Title();
    at = when;
  }
  return title.empty() ? "it has called nothing yet" : StrCat("its last call: ", title);
}

void Negotiator::FailMismatches(Time now) {
  for (size_t set = 0; set < last_heard_.size(); ++set) {
    if (now - last_heard_[set] < Seconds(config_.mismatch_time_s)) continue;
    std::map<int, std::vector<std::string>> names;  // rank -> what it waits for
    std::vector<std::pair<Key, Entry*>> stuck;
    for (auto& [key, queue] : entries_) {
      if (key.first != static_cast<int>(set)) continue;
      for (Entry& entry : queue) {
        if (entry.failed) continue;
        stuck.push_back({key, &entry});
        for (size_t m = 0; m < entry.waiting.size(); ++m) {
          const SignaturePtr& waiting = entry.waiting[m];
          if (waiting != nullptr) names[members(set)[m]].push_back(waiting->Title());
        }
      }
    }
    // A rank with nothing pending may still come: it is only slow.
    if (stuck.empty() || names.size() < members(set).size()) continue;
    std::vector<std::string> lines;
    for (const auto& [rank, waits] : names) {
      lines.push_back(StrCat("rank ", rank, " waits in ", Join(waits, 8)));
    }
    const Status status = Status::FailedPrecondition(StrCat(
        "names that cannot match: no tensor is pending on all ranks of process set ", set,
        ", and nobody called for ", WholeSeconds(now - last_heard_[set]), " s: ", Join(lines, 16),
        "; run the same collectives under the same names on all ranks, and as many steps of each "
        "loop"));
    for (auto& [key, entry] : stuck) {
      for (size_t m = 0; m < entry->came.size(); ++m) entry->SetCame(m, true);
      Fail(key, entry, {status});
    }
    for (auto& [key, entry] : stuck) DropFinished(key);
  }
}

}  // namespace hvd
