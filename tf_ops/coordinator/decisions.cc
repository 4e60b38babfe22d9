// The part of Negotiator that decides what can run, and without whom.

#include <algorithm>
#include <iterator>
#include <utility>

#include "tf_ops/collectives/collective.h"
#include "tf_ops/coordinator/negotiator.h"

namespace hvd {

void Negotiator::Decide(const Key& key, Entry* entry) {
  const std::vector<int>& set = members(key.first);
  Decided decided;
  size_t of_first = 0;
  for (size_t m = 0; m < set.size(); ++m) {
    const SignaturePtr& s = entry->waiting[m];
    if (s == nullptr) {
      decided.absent.push_back(set[m]);
      continue;
    }
    if (decided.signature == nullptr) {
      decided.signature = s;
      of_first = m;
    }
    Status status = Agree(*s, set[m], *decided.signature, set[of_first]);
    if (!status.ok()) return Fail(key, entry, {std::move(status)});
  }
  const Signature& first = *decided.signature;
  if (first.kind == Kind::kJoin) return DecideAnswer(decided.signature);
  Status status = CheckAbsent(first, decided.absent);
  if (!status.ok()) return Fail(key, entry, {std::move(status)});
  if (status = CheckChange(first); !status.ok()) return Fail(key, entry, {std::move(status)});
  if (FindCollective(first.kind)->answered()) return DecideAnswer(decided.signature);

  const size_t each = SizeCount(first, static_cast<int>(set.size()));
  for (const SignaturePtr& s : entry->waiting) {
    const std::vector<int64_t> sizes = s != nullptr ? SizesOf(*s) : std::vector<int64_t>(each, 0);
    decided.sizes.insert(decided.sizes.end(), sizes.begin(), sizes.end());
  }
  decided.id = keeper_.cache().IdOf(key.first, key.second);
  Push(std::move(decided));
}

Status Negotiator::CheckAbsent(const Signature& s, const std::vector<int>& absent) const {
  if (absent.empty()) return Status::Ok();
  const auto fails = [&](int rank, const std::string& why) {
    return Status::FailedPrecondition(
        StrCat(s.Title(), ": ", world_.RankText(rank), " has joined and takes no part; ", why));
  };
  if (s.process_set != 0) {
    return fails(absent[0], StrCat("only what all ranks do can go on without it, and this is of "
                                   "process set ",
                                   s.process_set));
  }
  if (s.kind == Kind::kBroadcast && std::binary_search(absent.begin(), absent.end(), s.root)) {
    return fails(s.root, "it is the root; broadcast from a rank that has not joined");
  }
  if (FindCollective(s.kind)->answered()) {
    return fails(absent[0], "all ranks must; do it before the first joins");
  }
  if (s.op == ReduceOp::kAdasum) return fails(absent[0], "Adasum needs all ranks; use Average");
  return Status::Ok();
}

Status Negotiator::CheckChange(const Signature& s) const {
  if (s.kind == Kind::kRemoveProcessSet && (!sets_.has(s.root) || closed_[s.root])) {
    return Status::FailedPrecondition(
        StrCat(s.Title(), ": there is no process set ", s.root, " any more"));
  }
  if (s.kind == Kind::kAddProcessSet && sets_.Find(s.ranks) >= 0) {
    return Status::FailedPrecondition(StrCat(s.Title(), ": process set ", sets_.Find(s.ranks),
                                             " holds ", RanksText(s.ranks), " already"));
  }
  return Status::Ok();
}

void Negotiator::HearJoin(const Key& join, int rank) {
  joined_[rank] = true;
  last_joined_ = rank;
  FindLacks();
  ExpandAll();  // bits do not count ranks
  std::vector<Key> keys;
  for (const auto& [key, queue] : entries_) {
    if (key != join && MemberOf(key.first, rank)) keys.push_back(key);
  }
  for (const Key& key : keys) {
    for (Entry& entry : entries_[key]) {
      if (!entry.failed && AllCame(key, entry)) Decide(key, &entry);
    }
    DropFinished(key);
  }
}

void Negotiator::DecideAnswer(const SignaturePtr& signature) {
  Signature answer = *signature;
  if (answer.kind == Kind::kJoin) {
    answer.root = last_joined_;
    joined_.assign(joined_.size(), false);
    FindLacks();
  } else if (answer.kind == Kind::kAddProcessSet) {
    // No other change is on its way: every rank would have to have asked for it.
    answer.root = sets_.size();
  } else {
    CloseSet(answer.root);
  }
  Push({std::make_shared<const Signature>(std::move(answer)), 0, {}, {}});
}

void Negotiator::CloseSet(int set) {
  closed_[set] = true;
  for (auto it = gathering_.begin(); it != gathering_.end();) {
    const bool gone = keeper_.cache().Find(it->first)->process_set == set;
    it = gone ? gathering_.erase(it) : std::next(it);
  }
  for (auto it = entries_.begin(); it != entries_.end();) {
    it = it->first.first == set ? entries_.erase(it) : std::next(it);
  }
}

bool Negotiator::MustWait(const Decided& decided, const std::vector<Decided>& unflushed) const {
  const Signature& s = *decided.signature;
  return s.kind == Kind::kRemoveProcessSet &&
         std::any_of(unflushed.begin(), unflushed.end(),
                     [&s](const Decided& d) { return d.signature->process_set == s.root; });
}

void Negotiator::TakeBackJoin(int rank) {
  joined_[rank] = false;
  FindLacks();
}

void Negotiator::FindLacks() {
  lacks_.resize(closed_.size());
  for (size_t set = 0; set < lacks_.size(); ++set) {
    const std::vector<int>& ranks = members(static_cast<int>(set));
    lacks_[set] = std::count_if(ranks.begin(), ranks.end(), [this](int rank) {
      return left_because_[rank] >= 0 || joined_[rank];
    });
  }
}

}  // namespace hvd
