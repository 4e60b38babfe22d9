// SegmentView: windows into a call's segments, seen as one array.
//
// A window inside one segment is used where it lies; one that crosses a border, or whose elements
// are of another type than those that travel, is packed into, or unpacked from, memory that the
// caller gives.

#ifndef TF_OPS_TRANSPORT_SEGMENT_VIEW_H_
#define TF_OPS_TRANSPORT_SEGMENT_VIEW_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "tf_ops/transport/collective_call.h"

namespace hvd {

// The segments of elements [begin, begin + count) of the array that `segments` are, whose elements
// have `item_bytes`.
std::vector<Segment> Cut(const std::vector<Segment>& segments, int64_t begin, int64_t count,
                         int64_t item_bytes);

class SegmentView {
 public:
  explicit SegmentView(const CollectiveCall& call)
      : segments_(call.segments), dtype_(call.dtype), in_memory_(call.in_memory()) {}

  // The next windows begin here.  REQUIRES: begin does not go down between calls.
  void Seek(int64_t begin);

  // The input of [begin, begin + count): its own memory, or packed into `pack`.
  const std::byte* Input(int64_t count, std::byte* pack) const;

  // Where the output of [begin, begin + count) can be written: its own memory, or
  // `pack`, which then goes to its places by Unpack().
  std::byte* Output(int64_t count, std::byte* pack) const;
  void Unpack(int64_t count, const std::byte* from) const;

  // Copies the input, or to the output, of [begin, begin + count).
  void CopyIn(int64_t count, std::byte* to) const;
  void CopyOut(int64_t count, const std::byte* from) const;

  // Calls visit(segment, offset in it, elements, offset in the window) for each piece of
  // [begin, begin + count) that lies in one segment; offsets are in elements.
  template <typename Visit>
  void ForPieces(int64_t count, Visit visit) const {
    int64_t offset = inside_;
    int64_t done = 0;
    for (size_t i = index_; done < count; ++i, offset = 0) {
      const int64_t n = std::min(count - done, segments_[i].count - offset);
      if (n > 0) visit(segments_[i], offset, n, done);
      done += n;
    }
  }

 private:
  bool Whole(int64_t count) const;

  const std::vector<Segment>& segments_;
  const DType dtype_;
  const DType in_memory_;
  size_t index_ = 0;    // the segment that holds `begin`
  int64_t start_ = 0;   // of that segment in the whole
  int64_t inside_ = 0;  // begin - start_
};

}  // namespace hvd

#endif  // TF_OPS_TRANSPORT_SEGMENT_VIEW_H_
