// Staging: the memory in which fused tensors and the peers' parts meet.
//
// Allocated at the first collective that needs it, kept until the Runtime ends.
//
// Threads: the data thread only.

#ifndef TF_OPS_FUSION_STAGING_H_
#define TF_OPS_FUSION_STAGING_H_

#include <cstddef>
#include <cstdlib>
#include <memory>

#include "tf_ops/base/bytes.h"

namespace hvd {

class Staging {
 public:
  // `bytes`, page-aligned; empty when the machine has no memory left.  Not more: ranks cut
  // tensors by its size, so it must not depend on what was asked for before.
  Bytes Get(size_t bytes) {
    if (bytes > size_) {
      constexpr size_t kPage = 4096;
      size_ = (bytes + kPage - 1) / kPage * kPage;
      memory_.reset(std::aligned_alloc(kPage, size_));
      if (memory_ == nullptr) size_ = 0;
    }
    return size_ < bytes ? Bytes() : Bytes(memory_.get(), bytes);
  }

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::unique_ptr<void, Free> memory_;
  size_t size_ = 0;
};

}  // namespace hvd

#endif  // TF_OPS_FUSION_STAGING_H_
