#include "tf_ops/transport/segment_view.h"

#include <cstring>

namespace hvd {

std::vector<Segment> Cut(const std::vector<Segment>& segments, int64_t begin, int64_t count,
                         int64_t item_bytes) {
  std::vector<Segment> cut;
  for (const Segment& s : segments) {
    const int64_t from = std::clamp<int64_t>(begin, 0, s.count);
    const int64_t to = std::clamp<int64_t>(begin + count, 0, s.count);
    if (from < to) {
      cut.push_back({s.in + from * item_bytes, s.out + from * item_bytes, to - from});
    }
    begin -= s.count;
  }
  return cut;
}

void SegmentView::Seek(int64_t begin) {
  while (index_ < segments_.size() && begin >= start_ + segments_[index_].count) {
    start_ += segments_[index_++].count;
  }
  inside_ = begin - start_;
}

bool SegmentView::Whole(int64_t count) const {
  return index_ < segments_.size() && inside_ + count <= segments_[index_].count;
}

void SegmentView::CopyIn(int64_t count, std::byte* to) const {
  ForPieces(count, [&](const Segment& s, size_t offset, size_t bytes, size_t at) {
    std::memcpy(to + at, s.in + offset, bytes);
  });
}

void SegmentView::CopyOut(int64_t count, const std::byte* from) const {
  ForPieces(count, [&](const Segment& s, size_t offset, size_t bytes, size_t at) {
    std::memcpy(s.out + offset, from + at, bytes);
  });
}

const std::byte* SegmentView::Input(int64_t count, std::byte* pack) const {
  if (Whole(count)) return segments_[index_].in + inside_ * item_bytes_;
  CopyIn(count, pack);
  return pack;
}

std::byte* SegmentView::Output(int64_t count, std::byte* pack) const {
  return Whole(count) ? segments_[index_].out + inside_ * item_bytes_ : pack;
}

void SegmentView::Unpack(int64_t count, const std::byte* from) const {
  if (!Whole(count)) CopyOut(count, from);
}

}  // namespace hvd
