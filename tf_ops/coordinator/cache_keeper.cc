#include "tf_ops/coordinator/cache_keeper.h"

#include <limits>

namespace hvd {

CacheKeeper::Place CacheKeeper::Use(const std::shared_ptr<const Signature>& signature,
                                    CacheId cached_id, const IsBusy& is_busy,
                                    std::vector<Evicted>* evicted) {
  // What was gathered by its id is the cache's own.
  const bool own = cached_id != 0 && cache_.Find(cached_id) == signature;
  if (const CacheId id = own ? cached_id : cache_.IdFor(*signature); id != 0) {
    used_.splice(used_.begin(), used_, places_[id]);
    return {id, false};
  }
  // Ids are not used twice; who has used them up goes on without.
  if (capacity_ == 0 || last_id_ == std::numeric_limits<CacheId>::max()) return {};
  if (const CacheId old = cache_.IdOf(signature->process_set, signature->name); old != 0) {
    Evict(old, evicted);
  } else if (static_cast<int64_t>(cache_.size()) >= capacity_) {
    auto it = used_.rbegin();
    while (it != used_.rend() && is_busy(*it, *cache_.Find(*it))) ++it;
    if (it == used_.rend()) return {};
    Evict(*it, evicted);
  }
  const CacheId id = ++last_id_;
  cache_.Insert(id, signature);
  used_.push_front(id);
  places_[id] = used_.begin();
  return {id, true};
}

void CacheKeeper::EvictSet(int process_set, std::vector<Evicted>* evicted) {
  std::vector<CacheId> ids;
  for (CacheId id : used_) {
    if (cache_.Find(id)->process_set == process_set) ids.push_back(id);
  }
  for (CacheId id : ids) Evict(id, evicted);
}

void CacheKeeper::Evict(CacheId id, std::vector<Evicted>* evicted) {
  evicted->push_back({id, cache_.Find(id)->process_set});
  used_.erase(places_[id]);
  places_.erase(id);
  cache_.Erase(id);
}

}  // namespace hvd
