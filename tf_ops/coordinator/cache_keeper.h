// CacheKeeper: the coordinator's cache, which decides what all caches hold.
//
// The least recently used goes first, but never what some rank may be waiting for.
//
// Threads: the control thread of rank 0.

#ifndef TF_OPS_COORDINATOR_CACHE_KEEPER_H_
#define TF_OPS_COORDINATOR_CACHE_KEEPER_H_

#include <functional>
#include <list>
#include <memory>
#include <unordered_map>
#include <vector>

#include "tf_ops/coordinator/cache.h"

namespace hvd {

class CacheKeeper {
 public:
  struct Place {
    CacheId id = 0;      // 0: not cached
    bool fresh = false;  // entered by this call
  };
  struct Evicted {
    CacheId id;
    int process_set;
  };
  // Whether anybody waits for what is cached so.
  using IsBusy = std::function<bool(CacheId id, const Signature& signature)>;

  // `capacity`: most entries; 0: nothing is cached.
  explicit CacheKeeper(int64_t capacity) : capacity_(capacity) {}

  const Cache& cache() const { return cache_; }

  // What all agreed on is about to be sent: its place in the cache, where it is entered now
  // if need be.  `cached_id`: of what is cached under its key, the same or another; 0: nothing is.
  // `evicted` gets what had to go for it.
  Place Use(const std::shared_ptr<const Signature>& signature, CacheId cached_id,
            const IsBusy& is_busy, std::vector<Evicted>* evicted);

  // What is cached of a process set goes.
  void EvictSet(int process_set, std::vector<Evicted>* evicted);

 private:
  void Evict(CacheId id, std::vector<Evicted>* evicted);

  const int64_t capacity_;
  Cache cache_;
  std::list<CacheId> used_;  // the latest first
  std::unordered_map<CacheId, std::list<CacheId>::iterator> places_;
  CacheId last_id_ = 0;
};

}  // namespace hvd

#endif  // TF_OPS_COORDINATOR_CACHE_KEEPER_H_
