// What a collective makes of a call's sizes: the shapes that come out, and which elements go
// where.  Rows and elements beyond 2^31 are in the tables: numbers alone need no memory.

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "tf_ops/collectives/collective.h"

namespace hvd {
namespace {

constexpr int64_t kGiant = int64_t{3} << 31;  // more than a uint32 holds

Signature Of(Kind kind, std::vector<std::vector<int64_t>> shapes) {
  Signature s;
  s.name = "x";
  s.kind = kind;
  s.dtype = DType::kUint8;
  s.grouped = shapes.size() > 1;
  s.shapes = std::move(shapes);
  return s;
}

// "0+6 6+3": the begin and the count of each part.
std::string Text(const std::vector<Part>& parts) {
  std::string text;
  for (const Part& part : parts) {
    text +=
        (text.empty() ? "" : " ") + std::to_string(part.begin) + "+" + std::to_string(part.count);
  }
  return text;
}

struct Case {
  const char* what;
  Signature signature;  // of rank `me`
  int me;
  int n;
  std::vector<int64_t> sizes;  // SizesOf() of each rank
  size_t tensor;               // the one that is looked at
  std::vector<int64_t> shape;  // that comes out
  std::string to;
  std::string from;
};

std::vector<Case> Cases() {
  const auto text = [](const char* before, int64_t n, const char* after = "") {
    return before + std::to_string(n) + after;
  };
  return {
      {"rows of each rank",
       Of(Kind::kAllgather, {{2, 3}}),
       0,
       3,
       {2, 0, 1},
       0,
       {3, 3},
       "",
       "0+6 6+0 6+3"},
      {"a rank that has joined gives none",
       Of(Kind::kAllgather, {{2}}),
       2,
       3,
       {1, 0, 2},
       0,
       {3},
       "",
       "0+1 1+0 1+2"},
      {"rows of nothing", Of(Kind::kAllgather, {{2, 0}}), 0, 2, {2, 5}, 0, {7, 0}, "", "0+0 0+0"},
      {"the second of a group",
       Of(Kind::kAllgather, {{1}, {4, 2}}),
       0,
       2,
       {1, 4, 2, 3},
       1,
       {7, 2},
       "",
       "0+8 8+6"},
      {"many rows",
       Of(Kind::kAllgather, {{kGiant}}),
       1,
       2,
       {kGiant, kGiant},
       0,
       {2 * kGiant},
       "",
       text("0+", kGiant) + text(" ", kGiant) + text("+", kGiant)},
      {"uneven splits",
       Of(Kind::kAlltoall, {{3, 2}}),
       1,
       3,
       {1, 2, 0, 0, 1, 2, 3, 0, 0},
       0,
       {3, 2},
       "0+0 0+2 2+4",
       "0+4 4+2 6+0"},
      {"splits of nothing",
       Of(Kind::kAlltoall, {{0}}),
       0,
       2,
       {0, 0, 0, 0},
       0,
       {0},
       "0+0 0+0",
       "0+0 0+0"},
      {"large rows",
       Of(Kind::kAlltoall, {{3, kGiant}}),
       0,
       2,
       {1, 2, 2, 0},
       0,
       {3, kGiant},
       text("0+", kGiant) + text(" ", kGiant) + text("+", 2 * kGiant),
       text("0+", kGiant) + text(" ", kGiant) + text("+", 2 * kGiant)},
      {"rows that divide",
       Of(Kind::kReducescatter, {{4, 5}}),
       1,
       2,
       {},
       0,
       {2, 5},
       "0+10 10+10",
       ""},
      {"rows that do not",
       Of(Kind::kReducescatter, {{5, 2}}),
       2,
       3,
       {},
       0,
       {1, 2},
       "0+4 4+4 8+2",
       ""},
      {"fewer rows than ranks",
       Of(Kind::kReducescatter, {{2}}),
       2,
       3,
       {},
       0,
       {0},
       "0+1 1+1 2+0",
       ""},
      {"no rows", Of(Kind::kReducescatter, {{0, 3}}), 0, 2, {}, 0, {0, 3}, "0+0 0+0", ""},
      {"many rows that do not divide",
       Of(Kind::kReducescatter, {{2 * kGiant + 1}}),
       0,
       2,
       {},
       0,
       {kGiant + 1},
       text("0+", kGiant + 1) + text(" ", kGiant + 1) + text("+", kGiant),
       ""},
  };
}

TEST(Divide, WhatComesOutAndWhatGoesWhere) {
  for (const Case& c : Cases()) {
    const Collective& collective = *FindCollective(c.signature.kind);
    const Around around{c.me, c.n, c.sizes};
    EXPECT_EQ(collective.output_shape(c.signature, c.tensor, around), c.shape) << c.what;
    CollectiveCall call;
    collective.divide(c.signature, c.tensor, around, &call);
    EXPECT_EQ(call.to.empty() ? "" : Text(call.to[0]), c.to) << c.what;
    EXPECT_EQ(call.from.empty() ? "" : Text(call.from[0]), c.from) << c.what;
  }
}

TEST(Divide, ReductionsAndBroadcastsKeepTheirShape) {
  for (Kind kind : {Kind::kAllreduce, Kind::kBroadcast}) {
    const Collective& collective = *FindCollective(kind);
    const Signature s = Of(kind, {{2, kGiant}});
    EXPECT_EQ(collective.output_shape(s, 0, {0, 2, {}}), s.shape());
    EXPECT_EQ(collective.divide, nullptr);
  }
}

TEST(Complete, GivesAnAlltoallEqualSplits) {
  const auto completed = [](std::vector<int64_t> shape, int n) {
    Signature s = Of(Kind::kAlltoall, {std::move(shape)});
    EXPECT_TRUE(Complete(&s, n).ok());
    return s.splits;
  };
  EXPECT_EQ(completed({6, 2}, 3), std::vector<int64_t>({2, 2, 2}));
  EXPECT_EQ(completed({0}, 2), std::vector<int64_t>({0, 0}));
  EXPECT_EQ(completed({3 * kGiant}, 3), std::vector<int64_t>({kGiant, kGiant, kGiant}));
  Signature given = Of(Kind::kAlltoall, {{5}});
  given.splits = {5, 0};
  EXPECT_TRUE(Complete(&given, 2).ok());
  EXPECT_EQ(given.splits, std::vector<int64_t>({5, 0}));
  Signature other = Of(Kind::kAllgather, {{5}});
  EXPECT_TRUE(Complete(&other, 2).ok());
  EXPECT_TRUE(other.splits.empty());
  for (std::vector<int64_t> shape : {std::vector<int64_t>({5}), {}}) {
    Signature wrong = Of(Kind::kAlltoall, {shape});
    EXPECT_EQ(Complete(&wrong, 2).code(), Code::kInvalidArgument);
  }
}

TEST(Sizes, AreWhatMayChangeFromCallToCall) {
  Signature alltoall = Of(Kind::kAlltoall, {{kGiant + 2, 3}});
  alltoall.splits = {kGiant, 2};
  struct Row {
    Signature signature;
    std::vector<int64_t> sizes;
    std::vector<int64_t> others;                     // of another call
    std::vector<std::vector<int64_t>> other_shapes;  // with those
  };
  const Row rows[] = {
      {Of(Kind::kAllreduce, {{2, 3}}), {}, {}, {{2, 3}}},
      {Of(Kind::kReducescatter, {{2, 3}}), {}, {}, {{2, 3}}},
      {Of(Kind::kAllgather, {{2, 3}}), {2}, {kGiant}, {{kGiant, 3}}},
      {Of(Kind::kAllgather, {{2, 3}, {4}}), {2, 4}, {0, 9}, {{0, 3}, {9}}},
      {alltoall, {kGiant, 2}, {0, kGiant}, {{kGiant, 3}}},
  };
  for (const Row& row : rows) {
    const std::string title = row.signature.Title();
    EXPECT_EQ(SizesOf(row.signature), row.sizes) << title;
    EXPECT_EQ(SizeCount(row.signature, 2), row.sizes.size()) << title;
    const Signature other = WithSizes(row.signature, row.others);
    EXPECT_EQ(other.shapes, row.other_shapes) << title;
    EXPECT_EQ(SizesOf(other), row.others) << title;
    EXPECT_TRUE(SameButSizes(row.signature, other)) << title;
    Signature wider = other;
    wider.shapes.back().push_back(7);
    EXPECT_FALSE(SameButSizes(row.signature, wider)) << title;
    Signature group = other;
    group.grouped = !group.grouped;
    EXPECT_FALSE(SameButSizes(row.signature, group)) << title;
    Signature larger = other;
    ++larger.others;
    EXPECT_FALSE(SameButSizes(row.signature, larger)) << title;
  }
}

// What came by wire is checked after it was put in, so it may be anything.
TEST(Sizes, ThatOverflowAreNoHarm) {
  const int64_t most = std::numeric_limits<int64_t>::max();
  const Signature s = WithSizes(Of(Kind::kAlltoall, {{1}}), {most, most, 1});
  EXPECT_EQ(Validate(s, {0, 1, 2}, 0).code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace hvd
