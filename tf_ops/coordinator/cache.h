// Cache: what was negotiated once, under a small number.
//
// Every rank has one, and all change it in the same order: only responses of the stream
// insert and erase (CONTRACT: "The cache").  The key is (process set, wire name), the value
// the signature without what may change from call to call.
//
// Threads: the control thread.

#ifndef TF_OPS_COORDINATOR_CACHE_H_
#define TF_OPS_COORDINATOR_CACHE_H_

#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tf_ops/coordinator/key.h"
#include "tf_ops/coordinator/message.h"

namespace hvd {

class Cache {
 public:
  // REQUIRES: the id is new.
  void Insert(CacheId id, std::shared_ptr<const Signature> signature);
  void Erase(CacheId id);

  // Null: not cached.
  std::shared_ptr<const Signature> Find(CacheId id) const;

  // 0: nothing is cached under this key.
  CacheId IdOf(int process_set, std::string_view name) const;

  // The id that says all of `signature` but its per-call sizes; 0: none does.
  CacheId IdFor(const Signature& signature) const;

  size_t size() const { return by_id_.size(); }

  // Changes the cache as the stream says: evictions, then insertions; and looks up what a
  // response names by id alone.  False: it names an id that is not there, or enters one that
  // is not above all before it.
  bool Apply(Response* response);

 private:
  std::unordered_map<CacheId, std::shared_ptr<const Signature>> by_id_;
  std::unordered_map<KeyView, CacheId, KeyHash> by_key_;  // views of names in by_id_
  CacheId last_id_ = 0;                                   // entered by Apply()
};

}  // namespace hvd

#endif  // TF_OPS_COORDINATOR_CACHE_H_
