// Ranks that join, and groups, in the negotiation.

#include <gtest/gtest.h>

#include "tests/cc/coordinator/negotiator_fixture.h"
#include "tf_ops/collectives/collective.h"

namespace hvd {
namespace {

class JoinTest : public NegotiatorTest {
 protected:
  static Signature Join() {
    Signature s = Of(Kind::kJoin, {});
    s.name = kJoinName;
    return s;
  }
  static Signature Of(Kind kind, std::vector<int64_t> shape, const std::string& name = "a") {
    Signature s = Tensor(name);
    s.kind = kind;
    s.shapes = {std::move(shape)};
    return s;
  }
  static Signature Average(const std::string& name) {
    Signature s = Tensor(name);
    s.op = ReduceOp::kAverage;
    return s;
  }
};

TEST_F(JoinTest, AllJoinAndTheLastIsTheResult) {
  for (int last : {1, 2, 0}) {
    for (int rank : {0, 1, 2}) {
      if (rank != last) Ready(rank, Join());
    }
    EXPECT_FALSE(negotiator_->has_output());
    Ready(last, Join());
    EXPECT_EQ(Flush(), Lines({"<join>>012"}));
    EXPECT_EQ(last_root_, last);
    EXPECT_FALSE(negotiator_->waiting());
    for (int rank : {0, 1, 2}) Ready(rank, Tensor("a"));
    EXPECT_EQ(Flush(), Lines({"a>012"}));  // all are there again
  }
}

TEST_F(JoinTest, WhatLacksOnlyThoseThatJoinedRuns) {
  Ready(0, Tensor("before"));
  Ready(1, Tensor("before"));
  Ready(2, Join());
  EXPECT_EQ(Flush(), Lines({"before/2>012"}));
  Ready(1, Tensor("after"));
  EXPECT_TRUE(Flush().empty());
  Ready(0, Tensor("after"));
  EXPECT_EQ(Flush(), Lines({"after/2>012"}));
  Ready(0, Tensor("alone"));
  Ready(1, Join());
  EXPECT_EQ(Flush(), Lines({"alone/1/2>012"}));
  Ready(0, Join());
  EXPECT_EQ(Flush(), Lines({"<join>>012"}));
  EXPECT_EQ(last_root_, 0);
}

TEST_F(JoinTest, OnlyWhatRunsOnTheSameRanksIsFused) {
  Ready(2, Tensor("mine"));
  Ready(2, Join());
  for (int rank : {0, 1}) {
    for (const char* name : {"b", "mine", "c"}) Ready(rank, Tensor(name));
  }
  EXPECT_EQ(Flush(), Lines({"b/2>012", "mine>012", "c/2>012"}));
}

TEST_F(JoinTest, ABitIsExpandedWhereARankHasJoined) {
  for (int rank : {0, 1, 2}) Ready(rank, Tensor("a"));
  EXPECT_EQ(Flush(), Lines({"a>012"}));
  Bit(0, 1);
  Bit(1, 1);
  Ready(2, Join());
  EXPECT_EQ(Flush(), Lines({"a/2>012"}));
  Bit(1, 1);
  EXPECT_TRUE(Flush().empty());
  Bit(0, 1);
  EXPECT_EQ(Flush(), Lines({"a/2>012"}));
  for (int rank : {0, 1}) Ready(rank, Join());
  EXPECT_EQ(Flush(), Lines({"<join>>012"}));
  for (int rank : {0, 1, 2}) Bit(rank, 1);
  EXPECT_EQ(Flush(), Lines({"a>012"}));
}

TEST_F(JoinTest, ThoseThatJoinedHaveSizesOfZero) {
  Ready(1, Join());
  for (int rank : {0, 2}) Ready(rank, Of(Kind::kAllgather, {rank + 3, 2}));
  EXPECT_EQ(Flush(), Lines({"a/1>012"}));
  EXPECT_EQ(last_rows_, (std::vector<std::vector<int64_t>>{{3, 0, 5}}));
  for (int rank : {0, 2}) {
    Signature s = Of(Kind::kAlltoall, {6}, "b");
    s.splits = {1, 2, 3};
    Ready(rank, s);
  }
  EXPECT_EQ(Flush(), Lines({"b/1>012"}));
  EXPECT_EQ(last_rows_, (std::vector<std::vector<int64_t>>{{1, 2, 3, 0, 0, 0, 1, 2, 3}}));
  for (int rank : {0, 2}) {
    Signature s = Of(Kind::kAllgather, {2}, "c");
    s.grouped = true;
    s.shapes.push_back({rank, 4});
    Ready(rank, s);
  }
  EXPECT_EQ(Flush(), Lines({"c/1>012"}));
  EXPECT_EQ(last_rows_, (std::vector<std::vector<int64_t>>{{2, 0, 0, 0, 2, 2}}));
}

TEST_F(JoinTest, AnAverageIsOfAllOrOfThoseThatContribute) {
  for (const auto& [how, divisor] : {std::pair{kJoinAverageOfAll, 0}, {kJoinAverageOfPresent, 2}}) {
    config_.join_average = how;
    Reset(3);
    Ready(2, Join());
    for (int rank : {0, 1}) Ready(rank, Average("a"));
    EXPECT_EQ(Flush(), Lines({"a/2>012"}));
    EXPECT_EQ(last_divisor_, divisor);
    for (int rank : {0, 1}) Ready(rank, Join());
    EXPECT_EQ(Flush(), Lines({"<join>>012"}));
    for (int rank : {0, 1, 2}) Ready(rank, Average("a"));
    EXPECT_EQ(Flush(), Lines({"a>012"}));
    EXPECT_EQ(last_divisor_, 0);
  }
}

TEST_F(JoinTest, WhatCannotGoOnFailsNowAndLater) {
  Signature broadcast = Of(Kind::kBroadcast, {1});
  broadcast.root = 2;
  Ready(0, broadcast);
  Ready(1, broadcast);
  Ready(1, Tensor("s", 1, 1));
  Ready(2, Join());
  EXPECT_EQ(Flush(), Lines({"a!3>0", "a!3>1", "s!3>1"}));
  EXPECT_NE(last_text_.find("rank 2 (host h) has joined and takes no part"), std::string::npos)
      << last_text_;
  EXPECT_NE(last_text_.find("process set 1"), std::string::npos) << last_text_;
  Ready(1, Tensor("later", 1, 1));
  EXPECT_EQ(Flush(), Lines({"later!3>1"}));
  broadcast.root = 1;
  for (int rank : {0, 1}) Ready(rank, broadcast);
  EXPECT_EQ(Flush(), Lines({"a/2>012"}));
  EXPECT_EQ(last_root_, 1);
}

TEST_F(JoinTest, OneThatIsTakenBackIsNone) {
  Ready(2, Join());
  Withdraw(2, Join());
  EXPECT_EQ(Flush(), Lines({"<join>!1>2"}));
  for (int rank : {0, 1}) Ready(rank, Tensor("a"));
  EXPECT_TRUE(Flush().empty());
  Ready(2, Tensor("a"));
  EXPECT_EQ(Flush(), Lines({"a>012"}));
  // To the others it is a failed one, and the next works.
  for (int rank : {0, 1}) Ready(rank, Join());
  EXPECT_EQ(Flush(), Lines({"<join>!3>0", "<join>!3>1"}));
  for (int rank : {0, 1, 2}) Ready(rank, Join());
  EXPECT_EQ(Flush(), Lines({"<join>>012"}));
}

TEST_F(JoinTest, ALeaverFailsTheJoin) {
  Ready(0, Join());
  negotiator_->Leave(2, 2);
  EXPECT_EQ(Flush(), Lines({"<join>!9>0"}));
  Ready(1, Join());
  EXPECT_EQ(Flush(), Lines({"<join>!9>1"}));
  EXPECT_FALSE(negotiator_->waiting());
}

TEST_F(JoinTest, WhoJoinsWaitsAsLongAsOthersWork) {
  config_.stall_check_time_s = 60;
  config_.stall_shutdown_time_s = 100;
  Ready(2, Join());
  std::vector<std::string> warnings;
  for (int step = 0; step < 10; ++step) {
    now_ += std::chrono::seconds(50);
    for (int rank : {0, 1}) Ready(rank, Tensor("a"));
    EXPECT_EQ(Flush(), Lines({"a/2>012"}));
    EXPECT_TRUE(negotiator_->Inspect(now_, &warnings).ok());
  }
  EXPECT_TRUE(warnings.empty());
  now_ += std::chrono::seconds(101);
  EXPECT_EQ(negotiator_->Inspect(now_, &warnings).code(), Code::kDeadlineExceeded);
}

TEST_F(JoinTest, AGroupIsOneRequest) {
  const auto group = [](std::vector<std::vector<int64_t>> shapes) {
    Signature s = Tensor("g");
    s.grouped = true;
    s.shapes = std::move(shapes);
    return s;
  };
  for (int rank : {0, 1, 2}) Ready(rank, group({{2}, {}, {0}}));
  for (int rank : {0, 1, 2}) Ready(rank, Tensor("a"));
  EXPECT_EQ(Flush(), Lines({"g+a>012"}));
  config_.disable_group_fusion = true;
  for (int rank : {0, 1, 2}) Ready(rank, group({{2}, {}, {0}}));
  for (int rank : {0, 1, 2}) Ready(rank, Tensor("a"));
  EXPECT_EQ(Flush(), Lines({"g>012", "a>012"}));
  for (int rank : {0, 1}) Ready(rank, group({{2}, {}, {0}}));
  Ready(2, group({{2}, {}}));
  EXPECT_EQ(Flush(), Lines({"g!3>0", "g!3>1", "g!3>2"}));
  EXPECT_NE(last_text_.find("a group of 2, rank 0 sent a group of 3"), std::string::npos)
      << last_text_;
}

TEST_F(JoinTest, AGroupLargerThanTheThresholdGoesInParts) {
  config_.fusion_threshold_bytes = 256 << 10;
  for (int rank : {0, 1, 2}) {
    Signature s = Tensor("g");
    s.grouped = true;
    s.shapes = {{60000}, {}, {0}, {5999}};
    Ready(rank, s);
  }
  EXPECT_EQ(Flush(), Lines({"g[0+65536]>012"}));
  EXPECT_EQ(Flush(), Lines({"g[65536+464]>012"}));
  EXPECT_FALSE(negotiator_->has_output());
}

TEST_F(JoinTest, MoreThan2To32ElementsGoInParts) {
  config_.fusion_threshold_bytes = int64_t{1} << 36;
  const int64_t count = (int64_t{5} << 32) + 7, part = int64_t{1} << 34;
  for (int rank : {0, 1, 2}) Ready(rank, Tensor("large", count));
  const auto text = [](int64_t begin, int64_t n) {
    return "large[" + std::to_string(begin) + "+" + std::to_string(n) + "]>012";
  };
  EXPECT_EQ(Flush(), Lines({text(0, part)}));
  EXPECT_EQ(Flush(), Lines({text(part, count - part)}));
  EXPECT_FALSE(negotiator_->has_output());
}

}  // namespace
}  // namespace hvd
