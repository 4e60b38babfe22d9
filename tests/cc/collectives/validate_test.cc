#include <gtest/gtest.h>

#include <limits>

#include "tf_ops/collectives/collective.h"

namespace hvd {
namespace {

const std::vector<int> kMembers = {0, 1, 2};

Signature Of(Kind kind, std::vector<int64_t> shape = {2, 3}) {
  Signature s;
  s.name = "x";
  s.kind = kind;
  s.dtype = DType::kFloat32;
  s.shapes = {std::move(shape)};
  return s;
}

Signature Alltoall(std::vector<int64_t> splits, int64_t rows) {
  Signature s = Of(Kind::kAlltoall, {rows});
  s.splits = std::move(splits);
  return s;
}

Signature Group(Kind kind, std::vector<std::vector<int64_t>> shapes) {
  Signature s = Of(kind);
  s.grouped = true;
  s.shapes = std::move(shapes);
  return s;
}

Signature WithOthers(Signature s, int others) {
  s.others = others;
  return s;
}

Signature Join(const std::string& name) {
  Signature s = Of(Kind::kJoin, {});
  s.dtype = DType::kInt32;
  s.name = name;
  return s;
}

Signature Change(Kind kind, std::vector<int> ranks, int root = 0) {
  Signature s = Of(kind, {});
  s.dtype = DType::kInt32;
  s.name = kProcessSetsName;
  s.ranks = std::move(ranks);
  s.root = root;
  return s;
}

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

struct Case {
  const char* what;
  Signature signature;
  Code code;
  const char* words;
};

std::vector<Case> Cases() {
  Signature bool_average = Of(Kind::kAllreduce);
  bool_average.dtype = DType::kBool;
  bool_average.op = ReduceOp::kAverage;
  Signature adasum = Of(Kind::kAllreduce);
  adasum.op = ReduceOp::kAdasum;
  Signature integer_adasum = adasum;
  integer_adasum.dtype = DType::kInt32;
  Signature adasum_of_rows = adasum;
  adasum_of_rows.kind = Kind::kReducescatter;
  Signature cast = Of(Kind::kAllreduce);
  cast.wire_dtype = DType::kFloat16;
  const auto cast_with = [&cast](auto change) {
    Signature s = cast;
    change(&s);
    return s;
  };
  Signature far_root = Of(Kind::kBroadcast);
  far_root.root = 7;
  Signature negative_root = Of(Kind::kBroadcast);
  negative_root.root = -1;
  Signature nameless = Of(Kind::kAllreduce);
  nameless.name = "";
  return {
      {"allreduce", Of(Kind::kAllreduce), Code::kOk, ""},
      {"scalar allreduce", Of(Kind::kAllreduce, {}), Code::kOk, ""},
      {"empty allreduce", Of(Kind::kAllreduce, {0, 5}), Code::kOk, ""},
      {"allgather", Of(Kind::kAllgather, {0, 5}), Code::kOk, ""},
      {"scalar allgather", Of(Kind::kAllgather, {}), Code::kInvalidArgument, "scalar"},
      {"average of bools", bool_average, Code::kInvalidArgument, "bool"},
      {"Adasum of three ranks", adasum, Code::kInvalidArgument, "2, 4, 8"},
      {"Adasum of integers", integer_adasum, Code::kInvalidArgument, "floating types"},
      {"Adasum of rows", adasum_of_rows, Code::kInvalidArgument, "only an allreduce"},
      {"cast for the way", cast, Code::kOk, ""},
      {"float64 cast to bfloat16", cast_with([](Signature* s) {
         s->dtype = DType::kFloat64;
         s->wire_dtype = DType::kBfloat16;
       }),
       Code::kOk, ""},
      {"integers cast", cast_with([](Signature* s) { s->dtype = DType::kInt32; }),
       Code::kInvalidArgument, "not float16 for int32"},
      {"cast to no smaller", cast_with([](Signature* s) { s->wire_dtype = DType::kFloat64; }),
       Code::kInvalidArgument, "not float64 for float32"},
      {"cast to an integer", cast_with([](Signature* s) { s->wire_dtype = DType::kInt16; }),
       Code::kInvalidArgument, "not int16 for float32"},
      {"a half cast to another", cast_with([](Signature* s) { s->dtype = DType::kBfloat16; }),
       Code::kInvalidArgument, "not float16 for bfloat16"},
      {"rows cast", cast_with([](Signature* s) { s->kind = Kind::kReducescatter; }),
       Code::kInvalidArgument, "only an allreduce"},
      {"a broadcast cast", cast_with([](Signature* s) { s->kind = Kind::kBroadcast; }),
       Code::kInvalidArgument, "only an allreduce"},
      {"Adasum cast", cast_with([](Signature* s) { s->op = ReduceOp::kAdasum; }),
       Code::kInvalidArgument, "not with Adasum"},
      {"root outside", far_root, Code::kInvalidArgument, "root_rank 7"},
      {"negative root", negative_root, Code::kInvalidArgument, "root_rank -1"},
      {"no name", nameless, Code::kInvalidArgument, "name"},
      {"a join of rows",
       [] {
         Signature s = Join(kJoinName);
         s.shapes = {{0}};
         return s;
       }(),
       Code::kInvalidArgument, "int32 of shape [0]"},
      {"a join of bytes",
       [] {
         Signature s = Join(kJoinName);
         s.dtype = DType::kUint8;
         return s;
       }(),
       Code::kInvalidArgument, "not uint8"},
      {"a new set", Change(Kind::kAddProcessSet, {0, 2}), Code::kOk, ""},
      {"a set of none", Change(Kind::kAddProcessSet, {}), Code::kInvalidArgument, "one or more"},
      {"a set of a rank twice", Change(Kind::kAddProcessSet, {1, 1}), Code::kInvalidArgument,
       "ranks 1, 1"},
      {"a set of no rank", Change(Kind::kAddProcessSet, {1, 3}), Code::kInvalidArgument,
       "there are 3 ranks, and no rank 3"},
      {"a set's end", Change(Kind::kRemoveProcessSet, {}, 4), Code::kOk, ""},
      {"the end of the set of all", Change(Kind::kRemoveProcessSet, {}, 0), Code::kInvalidArgument,
       "of all ranks, which stays"},
      {"the end of a negative set", Change(Kind::kRemoveProcessSet, {}, -1), Code::kInvalidArgument,
       "process set -1"},
      {"alltoall", Alltoall({2, 0, 1}, 3), Code::kOk, ""},
      {"alltoall of nothing", Alltoall({0, 0, 0}, 0), Code::kOk, ""},
      {"alltoall, two splits", Alltoall({2, 1}, 3), Code::kInvalidArgument, "has 3 ranks"},
      {"alltoall, negative", Alltoall({2, -1, 2}, 3), Code::kInvalidArgument, "negative"},
      {"alltoall, too many", Alltoall({2, 2, 0}, 3), Code::kInvalidArgument, "more than the 3"},
      {"alltoall, too few", Alltoall({2, 0, 0}, 3), Code::kInvalidArgument, "less than the 3"},
      {"alltoall, overflow", Alltoall({kMost, kMost, 2}, 0), Code::kInvalidArgument,
       "at most 2147483647"},
      {"scalar alltoall", Of(Kind::kAlltoall, {}), Code::kInvalidArgument, "scalar"},
      {"reducescatter", Of(Kind::kReducescatter), Code::kOk, ""},
      {"scalar reducescatter", Of(Kind::kReducescatter, {}), Code::kInvalidArgument, "scalar"},
      {"group", Group(Kind::kAllreduce, {{2}, {}, {0}}), Code::kOk, ""},
      {"others of no group", WithOthers(Of(Kind::kAllreduce, {1}), 1), Code::kInvalidArgument,
       "1 other tensors"},
      {"fewer than no others", WithOthers(Group(Kind::kAllreduce, {{1}}), -1),
       Code::kInvalidArgument, "-1 other tensors"},
      {"part of a group", WithOthers(Group(Kind::kAllreduce, {{1}}), 2), Code::kOk, ""},
      {"group of none", Group(Kind::kAllreduce, {}), Code::kInvalidArgument, "0 tensors"},
      {"group of broadcasts", Group(Kind::kBroadcast, {{1}}), Code::kInvalidArgument, "1 tensors"},
      {"scalar in a group", Group(Kind::kAllgather, {{1}, {}}), Code::kInvalidArgument,
       "tensor 1 is a scalar"},
      {"2^63 bytes in a group", Group(Kind::kAllreduce, {{int64_t{1} << 60}, {1}}),
       Code::kInvalidArgument, "of each of 2 tensors"},
      {"join", Join(kJoinName), Code::kOk, ""},
      {"join by another name", Join("x"), Code::kInvalidArgument, "<join>"},
      {"negative dimension", Of(Kind::kAllreduce, {-1}), Code::kInvalidArgument, "[-1]"},
      {"2^63 bytes", Of(Kind::kAllreduce, {int64_t{1} << 31, int64_t{1} << 30}),
       Code::kInvalidArgument, "2^63"},
      {"just below 2^63 bytes", Of(Kind::kAllreduce, {int64_t{1} << 31, (int64_t{1} << 30) - 1}),
       Code::kOk, ""},
      // One rank's rows fit, those of all three do not.
      {"2^63 bytes gathered", Of(Kind::kAllgather, {int64_t{1} << 60, 1}), Code::kInvalidArgument,
       "of each of 3 ranks does not fit in 2^63"},
      {"2^63 rows of nothing", Of(Kind::kAllgather, {int64_t{1} << 60, 0}), Code::kInvalidArgument,
       "of each of 3 ranks does not fit in 2^63"},
  };
}

TEST(Validate, EveryRule) {
  for (const Case& c : Cases()) {
    const Status status = Validate(c.signature, kMembers, 1);
    EXPECT_EQ(status.code(), c.code) << c.what << ": " << status;
    EXPECT_NE(status.message().find(c.words), std::string::npos) << c.what << ": " << status;
  }
}

TEST(Validate, ARankOutsideTheSet) {
  EXPECT_EQ(Validate(Of(Kind::kAllreduce), {1, 2}, 0).code(), Code::kInvalidArgument);
}

TEST(Agree, NamesBothRanksAndBothValues) {
  const Signature a = Of(Kind::kAllreduce);
  std::vector<std::pair<Signature, const char*>> others;
  others.push_back({Of(Kind::kAllreduce, {3, 2}), "shape [3, 2], rank 0 sent [2, 3]"});
  others.push_back({Of(Kind::kBroadcast), "kind broadcast, rank 0 sent allreduce"});
  others.push_back({a, "dtype int32, rank 0 sent float32"});
  others.back().first.dtype = DType::kInt32;
  others.push_back({a, "op Min, rank 0 sent Sum"});
  others.back().first.op = ReduceOp::kMin;
  others.push_back({a, "prescale_factor 0.5, rank 0 sent 1"});
  others.back().first.prescale = 0.5;
  others.push_back({a, "elements as float16, rank 0 sent float32"});
  others.back().first.wire_dtype = DType::kFloat16;
  others.push_back({a, "postscale_factor 2, rank 0 sent 1"});
  others.back().first.postscale = 2;
  for (const auto& [b, words] : others) {
    const Status status = Agree(b, 4, a, 0);
    EXPECT_EQ(status.code(), Code::kFailedPrecondition);
    EXPECT_NE(status.message().find(std::string("'x': rank 4 sent ") + words), std::string::npos)
        << status;
  }
  EXPECT_TRUE(Agree(a, 4, a, 0).ok());
}

TEST(Agree, AllgatherRowsMayDiffer) {
  EXPECT_TRUE(Agree(Of(Kind::kAllgather, {1, 3}), 1, Of(Kind::kAllgather, {9, 3}), 0).ok());
  EXPECT_FALSE(Agree(Of(Kind::kAllgather, {1, 4}), 1, Of(Kind::kAllgather, {1, 3}), 0).ok());
  EXPECT_FALSE(Agree(Of(Kind::kAllgather, {1}), 1, Of(Kind::kAllgather, {1, 1}), 0).ok());
}

TEST(Table, EveryKindHasItsRow) {
  for (int kind = 0; kind < kNumKinds; ++kind) {
    EXPECT_EQ(static_cast<int>(FindCollective(static_cast<Kind>(kind))->kind), kind);
  }
}

}  // namespace
}  // namespace hvd
