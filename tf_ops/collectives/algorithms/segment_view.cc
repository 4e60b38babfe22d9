#include "tf_ops/collectives/algorithms/segment_view.h"

#include <algorithm>
#include <cstring>

namespace hvd {

void SegmentView::Seek(int64_t begin) {
  while (index_ < segments_.size() && begin >= start_ + segments_[index_].count) {
    start_ += segments_[index_++].count;
  }
  inside_ = begin - start_;
}

bool SegmentView::Whole(int64_t count) const {
  return index_ < segments_.size() && inside_ + count <= segments_[index_].count;
}

template <typename Visit>
void SegmentView::ForPieces(int64_t count, Visit visit) const {
  int64_t offset = inside_;
  int64_t done = 0;
  for (size_t i = index_; done < count; ++i, offset = 0) {
    const int64_t n = std::min(count - done, segments_[i].count - offset);
    if (n > 0) visit(segments_[i], offset * item_bytes_, n * item_bytes_, done * item_bytes_);
    done += n;
  }
}

const std::byte* SegmentView::Input(int64_t count, std::byte* pack) const {
  if (Whole(count)) return segments_[index_].in + inside_ * item_bytes_;
  ForPieces(count, [&](const Segment& s, size_t offset, size_t bytes, size_t at) {
    std::memcpy(pack + at, s.in + offset, bytes);
  });
  return pack;
}

std::byte* SegmentView::Output(int64_t count, std::byte* pack) const {
  return Whole(count) ? segments_[index_].out + inside_ * item_bytes_ : pack;
}

void SegmentView::Unpack(int64_t count, const std::byte* from) const {
  if (Whole(count)) return;
  ForPieces(count, [&](const Segment& s, size_t offset, size_t bytes, size_t at) {
    std::memcpy(s.out + offset, from + at, bytes);
  });
}

}  // namespace hvd
