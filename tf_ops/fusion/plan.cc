#include "tf_ops/fusion/plan.h"

#include <algorithm>
#include <map>

#include "tf_ops/collectives/collective.h"

namespace hvd {

std::vector<std::vector<size_t>> PlanBuckets(const std::vector<const Signature*>& ready,
                                             int64_t threshold_bytes, bool fuse_groups) {
  struct Open {
    size_t bucket;
    int64_t bytes;
  };
  std::map<decltype(BucketKey(*ready[0])), Open> open;  // the bucket of a key that has room
  std::vector<std::vector<size_t>> buckets;
  for (size_t i = 0; i < ready.size(); ++i) {
    const Signature& s = *ready[i];
    const int64_t bytes = s.bytes();
    if (!FindCollective(s.kind)->elementwise || threshold_bytes == 0 || bytes > threshold_bytes ||
        (s.grouped && !fuse_groups)) {
      buckets.push_back({i});
      continue;
    }
    const auto it = open.find(BucketKey(s));
    if (it != open.end() && it->second.bytes + bytes <= threshold_bytes) {
      buckets[it->second.bucket].push_back(i);
      it->second.bytes += bytes;
    } else {
      open[BucketKey(s)] = {buckets.size(), bytes};
      buckets.push_back({i});
    }
  }
  return buckets;
}

int64_t PartCount(const Signature& s, int64_t threshold_bytes) {
  if (!CanBeCut(s) || threshold_bytes == 0 ||
      s.bytes() <= std::max(threshold_bytes, kLeastPartBytes)) {
    return s.count();
  }
  // Whole cache lines, so that no part begins worse aligned than the tensor.
  constexpr int64_t kAlign = 64;
  const int64_t bytes = std::max(threshold_bytes, kLeastPartBytes);
  return bytes / static_cast<int64_t>(ItemBytes(s.sent_as())) / kAlign * kAlign;
}

}  // namespace hvd
