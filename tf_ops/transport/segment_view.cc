#include "tf_ops/transport/segment_view.h"

#include "tf_ops/device/reduce.h"

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
  return dtype_ == in_memory_ && index_ < segments_.size() &&
         inside_ + count <= segments_[index_].count;
}

void SegmentView::CopyIn(int64_t count, std::byte* to) const {
  const size_t item = ItemBytes(dtype_);
  const size_t memory_item = ItemBytes(in_memory_);
  ForPieces(count, [&](const Segment& s, int64_t offset, int64_t n, int64_t at) {
    Cast(in_memory_, dtype_, s.in + offset * memory_item, to + at * item, n);
  });
}

void SegmentView::CopyOut(int64_t count, const std::byte* from) const {
  const size_t item = ItemBytes(dtype_);
  const size_t memory_item = ItemBytes(in_memory_);
  ForPieces(count, [&](const Segment& s, int64_t offset, int64_t n, int64_t at) {
    Cast(dtype_, in_memory_, from + at * item, s.out + offset * memory_item, n);
  });
}

const std::byte* SegmentView::Input(int64_t count, std::byte* pack) const {
  if (Whole(count)) return segments_[index_].in + inside_ * ItemBytes(dtype_);
  CopyIn(count, pack);
  return pack;
}

std::byte* SegmentView::Output(int64_t count, std::byte* pack) const {
  return Whole(count) ? segments_[index_].out + inside_ * ItemBytes(dtype_) : pack;
}

void SegmentView::Unpack(int64_t count, const std::byte* from) const {
  if (!Whole(count)) CopyOut(count, from);
}

}  // namespace hvd
