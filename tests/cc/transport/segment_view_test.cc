#include "tf_ops/transport/segment_view.h"

#include <gtest/gtest.h>

#include <string>

namespace hvd {
namespace {

// Segments of `counts` elements, all from address 0 on; only numbers are looked at.
std::vector<Segment> Of(const std::vector<int64_t>& counts) {
  std::vector<Segment> segments;
  for (int64_t count : counts) segments.push_back({nullptr, nullptr, count});
  return segments;
}

// "4+6": elements in `in`, where the piece begins, and its count.
std::string CutText(const std::vector<int64_t>& counts, int64_t begin, int64_t count,
                    int64_t item) {
  // A place in memory for each segment, apart from the others; never read.
  std::vector<Segment> segments = Of(counts);
  std::vector<std::byte> memory(256);
  for (size_t i = 0; i < segments.size(); ++i) {
    segments[i].in = memory.data();
    segments[i].out = memory.data() + 1;
  }
  std::string text;
  for (const Segment& s : Cut(segments, begin, count, item)) {
    EXPECT_EQ(s.out - memory.data() - 1, s.in - memory.data());
    text += (text.empty() ? "" : " ") + std::to_string((s.in - memory.data()) / item) + "+" +
            std::to_string(s.count);
  }
  return text;
}

TEST(Cut, TakesWhatLiesInTheWindow) {
  struct Case {
    std::vector<int64_t> counts;
    int64_t begin, count;
    const char* text;
  };
  const Case cases[] = {
      {{10}, 0, 10, "0+10"},
      {{10}, 4, 6, "4+6"},
      {{10}, 4, 2, "4+2"},
      {{10}, 10, 0, ""},
      {{10}, 9, 5, "9+1"},
      {{3, 4, 5}, 0, 12, "0+3 0+4 0+5"},
      {{3, 4, 5}, 2, 6, "2+1 0+4 0+1"},
      {{3, 4, 5}, 3, 4, "0+4"},
      {{3, 4, 5}, 7, 1, "0+1"},
      {{3, 4, 5}, 8, 9, "1+4"},
      {{0, 3, 0, 0, 2, 0}, 2, 2, "2+1 0+1"},
      {{}, 0, 0, ""},
      {{0}, 0, 0, ""},
  };
  for (const Case& c : cases) {
    for (int64_t item : {1, 8}) {
      EXPECT_EQ(CutText(c.counts, c.begin, c.count, item), c.text)
          << c.begin << "+" << c.count << " of " << c.counts.size() << " segments";
    }
  }
}

TEST(Cut, PartsTogetherAreTheWholeBeyond2To32Elements) {
  const std::vector<int64_t> counts = {int64_t{3} << 32, 5, (int64_t{1} << 33) + 1, 0, 7};
  int64_t total = 0;
  for (int64_t count : counts) total += count;
  const int64_t part = (int64_t{1} << 31) + 3;
  const std::vector<Segment> segments = Of(counts);
  int64_t seen = 0, pieces = 0;
  for (int64_t begin = 0; begin < total; begin += part) {
    // Items of no bytes: the addresses stay where they are.
    for (const Segment& s : Cut(segments, begin, std::min(part, total - begin), 0)) {
      seen += s.count;
      ++pieces;
    }
  }
  EXPECT_EQ(seen, total);
  EXPECT_EQ(pieces, (total + part - 1) / part + 3);  // a border inside a part makes one more
}

TEST(SegmentView, WindowsGoOverBordersAndEmptySegments) {
  std::vector<uint8_t> in = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, out(10, 77);
  CollectiveCall call;
  call.dtype = DType::kUint8;
  int64_t at = 0;
  for (int64_t count : {3, 0, 4, 0, 0, 3}) {
    call.segments.push_back({reinterpret_cast<const std::byte*>(in.data() + at),
                             reinterpret_cast<std::byte*>(out.data() + at), count});
    at += count;
  }
  SegmentView view(call);
  std::byte pack[10];
  for (int64_t begin = 0; begin < 10; begin += 4) {
    const int64_t count = std::min<int64_t>(4, 10 - begin);
    view.Seek(begin);
    const std::byte* const window = view.Input(count, pack);
    // Only a window inside one segment is used where it lies.
    EXPECT_EQ(window == pack, begin != 8);
    EXPECT_EQ(view.Output(count, pack) == pack, begin != 8);
    view.CopyOut(count, window);
  }
  EXPECT_EQ(out, in);
}

}  // namespace
}  // namespace hvd
