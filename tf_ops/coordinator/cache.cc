#include "tf_ops/coordinator/cache.h"

#include "tf_ops/collectives/collective.h"

namespace hvd {

void Cache::Insert(CacheId id, std::shared_ptr<const Signature> signature) {
  by_key_.erase(ViewOf(*signature));  // its view is of the signature that had the key before
  by_key_.emplace(ViewOf(*signature), id);
  by_id_[id] = std::move(signature);
}

void Cache::Erase(CacheId id) {
  const auto it = by_id_.find(id);
  if (it == by_id_.end()) return;
  // A newer signature may have the key by now.
  const auto key = by_key_.find(ViewOf(*it->second));
  if (key != by_key_.end() && key->second == id) by_key_.erase(key);
  by_id_.erase(it);
}

std::shared_ptr<const Signature> Cache::Find(CacheId id) const {
  const auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : it->second;
}

CacheId Cache::IdOf(int process_set, std::string_view name) const {
  const auto it = by_key_.find({process_set, name});
  return it == by_key_.end() ? 0 : it->second;
}

CacheId Cache::IdFor(const Signature& signature) const {
  const CacheId id = IdOf(signature.process_set, signature.name);
  return id != 0 && SameButSizes(*Find(id), signature) ? id : 0;
}

bool Cache::Apply(Response* response) {
  for (CacheId id : response->evicted) Erase(id);
  for (ResponseTensor& tensor : response->tensors) {
    if (tensor.cache) {
      if (tensor.id <= last_id_) return false;
      last_id_ = tensor.id;
      Insert(tensor.id, tensor.signature);
    } else if (tensor.signature == nullptr) {
      tensor.signature = Find(tensor.id);
      if (tensor.signature == nullptr) return false;
    }
  }
  return true;
}

}  // namespace hvd
