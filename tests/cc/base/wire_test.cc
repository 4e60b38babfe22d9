#include "tf_ops/base/wire.h"

#include <gtest/gtest.h>

namespace hvd {
namespace {

enum class Color : uint8_t { kRed, kBlue };

TEST(Wire, RoundTrip) {
  WireWriter w;
  w.Put(int32_t{-7});
  w.PutString("héllo");
  w.PutVector<int64_t>({1, -2, 3});
  w.Put(Color::kBlue);
  const std::string frame = w.Take();
  WireReader r(frame);
  EXPECT_EQ(r.Get<int32_t>(), -7);
  EXPECT_EQ(r.GetString(), "héllo");
  EXPECT_EQ(r.GetVector<int64_t>(), std::vector<int64_t>({1, -2, 3}));
  EXPECT_EQ(r.GetEnum<Color>(2), Color::kBlue);
  EXPECT_TRUE(r.done());
}

TEST(Wire, ATruncatedFrameIsBadAndStaysBad) {
  WireWriter w;
  w.PutString("hello");
  const std::string frame = w.Take();
  for (size_t n = 0; n < frame.size(); ++n) {
    const std::string cut = frame.substr(0, n);
    WireReader r(cut);
    r.GetString();
    EXPECT_FALSE(r.ok()) << n;
    EXPECT_EQ(r.Get<int64_t>(), 0);
  }
}

TEST(Wire, ALengthIsNotBelieved) {
  WireWriter w;
  w.Put(uint32_t{0xffffffff});  // four thousand million items in no bytes
  const std::string frame = w.Take();
  WireReader strings(frame), vectors(frame);
  EXPECT_EQ(strings.GetString(), "");
  EXPECT_FALSE(strings.ok());
  EXPECT_TRUE(vectors.GetVector<int64_t>().empty());
  EXPECT_FALSE(vectors.ok());
}

TEST(Wire, AnUnknownEnumIsBad) {
  WireWriter w;
  w.Put(uint8_t{2});
  const std::string frame = w.Take();
  WireReader r(frame);
  r.GetEnum<Color>(2);
  EXPECT_FALSE(r.ok());
}

TEST(Wire, LeftoverBytesAreNotDone) {
  const std::string frame = "x";
  WireReader r(frame);
  EXPECT_TRUE(r.ok());
  EXPECT_FALSE(r.done());
}

}  // namespace
}  // namespace hvd
