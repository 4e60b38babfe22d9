// KeyView: what ranks match a request by, without a copy of its name.

#ifndef TF_OPS_COORDINATOR_KEY_H_
#define TF_OPS_COORDINATOR_KEY_H_

#include <cstddef>
#include <functional>
#include <string_view>

#include "tf_ops/collectives/signature.h"

namespace hvd {

// The name lives elsewhere, as long as this.
struct KeyView {
  int process_set;
  std::string_view name;

  bool operator==(const KeyView& other) const {
    return process_set == other.process_set && name == other.name;
  }
};

inline KeyView ViewOf(const Signature& s) { return {s.process_set, s.name}; }

struct KeyHash {
  size_t operator()(const KeyView& key) const {
    return std::hash<std::string_view>()(key.name) * 31 + static_cast<size_t>(key.process_set);
  }
};

}  // namespace hvd

#endif  // TF_OPS_COORDINATOR_KEY_H_
