#include "tf_ops/coordinator/negotiator.h"

#include <gtest/gtest.h>

#include "tests/cc/coordinator/negotiator_fixture.h"

namespace hvd {
namespace {

using std::chrono::seconds;

TEST_F(NegotiatorTest, RunsWhenAllHaveComeInTheOrderOfCompletion) {
  config_.fusion_threshold_bytes = 0;
  for (int rank : {2, 0}) {
    Ready(rank, Tensor("a"));
    Ready(rank, Tensor("b"));
  }
  EXPECT_FALSE(negotiator_->has_output());
  Ready(1, Tensor("b"));
  Ready(1, Tensor("a"));
  EXPECT_EQ(Flush(), Lines({"b>012", "a>012"}));
  EXPECT_FALSE(negotiator_->waiting());
}

TEST_F(NegotiatorTest, FusesWhatIsReadyTogether) {
  for (int rank = 0; rank < 3; ++rank) {
    for (const char* name : {"a", "b", "c"}) Ready(rank, Tensor(name));
  }
  EXPECT_EQ(Flush(), Lines({"a+b+c>012"}));
}

TEST_F(NegotiatorTest, ASetHasItsOwnRanks) {
  Ready(1, Tensor("a", 1, 1));
  Ready(0, Tensor("a"));
  EXPECT_TRUE(Flush().empty());
  Ready(2, Tensor("a", 1, 1));
  EXPECT_EQ(Flush(), Lines({"a>12"}));
}

TEST_F(NegotiatorTest, DisagreementFailsAllAndTheNameWorksAgain) {
  Ready(0, Tensor("a", 2));
  Ready(1, Tensor("a", 3));
  Ready(2, Tensor("a", 2));
  EXPECT_EQ(Flush(), Lines({"a!3>0", "a!3>1", "a!3>2"}));
  for (int rank = 0; rank < 3; ++rank) Ready(rank, Tensor("a", 2));
  EXPECT_EQ(Flush(), Lines({"a>012"}));
}

TEST_F(NegotiatorTest, ARefusalIsToldNowAndLater) {
  Ready(0, Tensor("a"));
  Refuse(1, Tensor("a"));
  EXPECT_EQ(Flush(), Lines({"a!3>0"}));
  EXPECT_NE(last_text_.find("rank 1"), std::string::npos);
  // The refuser comes again: that is the next one of this name.
  Ready(1, Tensor("a"));
  EXPECT_TRUE(Flush().empty());
  Ready(2, Tensor("a"));
  EXPECT_EQ(Flush(), Lines({"a!3>2"}));
  Ready(0, Tensor("a"));
  Ready(2, Tensor("a"));
  EXPECT_EQ(Flush(), Lines({"a>012"}));
  EXPECT_FALSE(negotiator_->waiting());
}

TEST_F(NegotiatorTest, AllMayRefuse) {
  for (int rank = 0; rank < 3; ++rank) Refuse(rank, Tensor("a"));
  EXPECT_TRUE(Flush().empty());
  EXPECT_FALSE(negotiator_->waiting());
}

TEST_F(NegotiatorTest, AWithdrawalIsACancellationToOneAndAFailureToOthers) {
  Ready(0, Tensor("a"));
  Ready(1, Tensor("a"));
  Withdraw(1, Tensor("a"));
  EXPECT_EQ(Flush(), Lines({"a!1>1", "a!3>0"}));
  Ready(2, Tensor("a"));
  EXPECT_EQ(Flush(), Lines({"a!3>2"}));
  EXPECT_FALSE(negotiator_->waiting());
}

TEST_F(NegotiatorTest, AWithdrawnGradientIsAsIfItHadNotCome) {
  Signature gradient = Tensor("g");
  gradient.gradient = true;
  Ready(0, gradient);
  Ready(1, gradient);
  Withdraw(1, gradient);
  EXPECT_EQ(Flush(), Lines({"g!1>1"}));
  Ready(2, gradient);
  EXPECT_EQ(Flush(), Lines({}));
  Ready(1, gradient);
  EXPECT_EQ(Flush(), Lines({"g>012"}));
  // Nothing is left where it was alone, and the rank may leave instead.
  Bit(1, 1);
  Withdraw(1, gradient);
  EXPECT_EQ(Flush(), Lines({"g!1>1"}));
  EXPECT_FALSE(negotiator_->waiting());
  Bit(0, 1);
  Bit(1, 1);
  Withdraw(1, gradient);
  EXPECT_EQ(Flush(), Lines({"g!1>1"}));
  negotiator_->Leave(1, 1);
  EXPECT_EQ(Flush(), Lines({"g!4>0"}));
}

TEST_F(NegotiatorTest, ADroppedGradientPaysWhatItWasOwedAndNothingElse) {
  Signature gradient = Tensor("g");
  gradient.gradient = true;
  Drop(1, gradient);
  EXPECT_FALSE(negotiator_->waiting());
  Refuse(0, gradient);
  Drop(1, gradient);  // its step has ended, and the next one is not to hear of it
  Ready(1, gradient);
  Ready(2, gradient);
  EXPECT_EQ(Flush(), Lines({"g!3>2"}));
  Ready(0, gradient);
  Drop(2, gradient);
  EXPECT_EQ(Flush(), Lines({}));
  Ready(2, gradient);
  EXPECT_EQ(Flush(), Lines({"g>012"}));
}

TEST_F(NegotiatorTest, AWithdrawalOfWhatIsScheduledIsTooLate) {
  for (int rank = 0; rank < 3; ++rank) Ready(rank, Tensor("a"));
  Withdraw(1, Tensor("a"));
  EXPECT_EQ(Flush(), Lines({"a>012"}));
}

TEST_F(NegotiatorTest, ALeaverFailsWhatNeedsItNowAndLater) {
  Signature gradient = Tensor("g");
  gradient.gradient = true;
  Ready(0, gradient);
  Ready(0, Tensor("a"));
  negotiator_->Leave(2, 2);
  EXPECT_EQ(Flush(), Lines({"a!9>0", "g!4>0"}));
  Ready(1, Tensor("a"));
  EXPECT_EQ(Flush(), Lines({"a!9>1"}));
  Ready(0, Tensor("new"));
  EXPECT_EQ(Flush(), Lines({"new!9>0"}));
  Ready(1, Tensor("new"));
  Ready(1, gradient);
  EXPECT_EQ(Flush(), Lines({"new!9>1", "g!4>1"}));
  EXPECT_FALSE(negotiator_->waiting());
}

TEST_F(NegotiatorTest, ALeaverDoesNotTouchSetsWithoutIt) {
  negotiator_->Leave(0, 0);
  Ready(1, Tensor("a", 1, 1));
  Ready(2, Tensor("a", 1, 1));
  EXPECT_EQ(Flush(), Lines({"a>12"}));
}

TEST_F(NegotiatorTest, AStallWarnsAgainAndAgainAndNamesTheMissing) {
  config_.stall_check_time_s = 60;
  Ready(0, Tensor("a"));
  Ready(1, Tensor("b", 1, 1));
  std::vector<std::string> warnings;
  now_ += seconds(59);
  EXPECT_TRUE(negotiator_->Inspect(now_, &warnings).ok());
  EXPECT_TRUE(warnings.empty());
  now_ += seconds(1);
  EXPECT_TRUE(negotiator_->Inspect(now_, &warnings).ok());
  ASSERT_EQ(warnings.size(), 2u);
  EXPECT_NE((warnings[0] + warnings[1]).find("'a'"), std::string::npos);
  EXPECT_NE((warnings[0] + warnings[1]).find("rank 2 (host h) (it has called nothing yet)"),
            std::string::npos)
      << warnings[0];
  EXPECT_TRUE(negotiator_->Inspect(now_, &warnings).ok());
  EXPECT_EQ(warnings.size(), 2u);
  now_ += seconds(60);
  EXPECT_TRUE(negotiator_->Inspect(now_, &warnings).ok());
  EXPECT_EQ(warnings.size(), 4u);
  EXPECT_FALSE(negotiator_->has_output());
}

TEST_F(NegotiatorTest, AStallEndsTheJobOnlyWhenAsked) {
  config_.stall_shutdown_time_s = 100;
  Ready(0, Tensor("a"));
  std::vector<std::string> warnings;
  now_ += seconds(99);
  EXPECT_TRUE(negotiator_->Inspect(now_, &warnings).ok());
  now_ += seconds(1);
  const Status status = negotiator_->Inspect(now_, &warnings);
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded);
  EXPECT_NE(status.message().find("ranks 1, 2"), std::string::npos) << status;
}

TEST_F(NegotiatorTest, NamesThatNeverMatchFailOnceNobodyCanCome) {
  config_.mismatch_time_s = 30;
  Ready(0, Tensor("a"));
  Ready(1, Tensor("b"));
  now_ += seconds(31);
  std::vector<std::string> warnings;
  EXPECT_TRUE(negotiator_->Inspect(now_, &warnings).ok());
  EXPECT_TRUE(Flush().empty());  // rank 2 may still come
  Ready(2, Tensor("b"));
  now_ += seconds(29);
  EXPECT_TRUE(negotiator_->Inspect(now_, &warnings).ok());
  EXPECT_TRUE(Flush().empty());  // too early
  now_ += seconds(1);
  EXPECT_TRUE(negotiator_->Inspect(now_, &warnings).ok());
  EXPECT_EQ(Flush(), Lines({"a!3>0", "b!3>1", "b!3>2"}));
  EXPECT_NE(last_text_.find("rank 0 waits in allreduce 'a'"), std::string::npos) << last_text_;
  EXPECT_FALSE(negotiator_->waiting());
}

TEST_F(NegotiatorTest, AMismatchIsSeenThoughAnotherSetIsBusy) {
  config_.mismatch_time_s = 30;
  for (int rank : {1, 2}) Ready(rank, Tensor(rank == 1 ? "a" : "b", 1, 1));
  now_ += seconds(31);
  Ready(0, Tensor("busy"));
  std::vector<std::string> warnings;
  EXPECT_TRUE(negotiator_->Inspect(now_, &warnings).ok());
  EXPECT_EQ(Flush(), Lines({"a!3>1", "b!3>2"}));
}

TEST_F(NegotiatorTest, WhatWasNegotiatedOnceIsABit) {
  show_ids_ = true;
  for (int rank : {1, 0, 2}) Ready(rank, Tensor("a"));
  EXPECT_EQ(Flush(), Lines({"a#1*>012"}));
  for (int rank : {2, 0}) Bit(rank, 1);
  EXPECT_FALSE(negotiator_->has_output());
  EXPECT_TRUE(negotiator_->waiting());
  Bit(1, 1);
  EXPECT_EQ(Flush(), Lines({"a#1>012"}));
  EXPECT_FALSE(negotiator_->waiting());
}

TEST_F(NegotiatorTest, BitsAndFullRequestsMeet) {
  show_ids_ = true;
  for (int rank : {0, 1, 2}) Ready(rank, Tensor("a", 2));
  EXPECT_EQ(Flush(), Lines({"a#1*>012"}));
  // Both values are named although two of them came as bits.
  Bit(0, 1);
  Ready(2, Tensor("a", 3));
  Bit(1, 1);
  EXPECT_EQ(Flush(), Lines({"a!3>0", "a!3>1", "a!3>2"}));
  EXPECT_NE(last_text_.find("rank 2 sent shape [3], rank 0 sent [2]"), std::string::npos)
      << last_text_;
  for (int rank : {0, 1, 2}) Bit(rank, 1);
  EXPECT_EQ(Flush(), Lines({"a#1>012"}));
  // All change: the old entry goes, the new one comes.
  for (int rank : {0, 1, 2}) Ready(rank, Tensor("a", 3));
  EXPECT_EQ(Flush(), Lines({"a#2*-1>012"}));
}

TEST_F(NegotiatorTest, PerCallSizesTravelBesideTheBit) {
  const auto gather = [](int64_t rows) {
    Signature s = Tensor("g", rows);
    s.kind = Kind::kAllgather;
    return s;
  };
  for (int rank : {0, 1, 2}) Ready(rank, gather(rank));
  EXPECT_EQ(Flush(), Lines({"g>012"}));
  EXPECT_EQ(last_rows_, (std::vector<std::vector<int64_t>>{{0, 1, 2}}));
  for (int rank : {2, 1, 0}) Bit(rank, 1, {10 + rank});
  EXPECT_EQ(Flush(), Lines({"g>012"}));
  EXPECT_EQ(last_rows_, (std::vector<std::vector<int64_t>>{{10, 11, 12}}));
}

TEST_F(NegotiatorTest, TheLeastRecentlyUsedGoesAndItsLateBitsAreDropped) {
  config_.cache_capacity = 2;
  Reset(3);
  show_ids_ = true;
  for (const char* name : {"a", "b"}) {
    for (int rank : {0, 1, 2}) Ready(rank, Tensor(name));
  }
  EXPECT_EQ(Flush(), Lines({"a#1*+b#2*>012"}));
  for (int rank : {0, 1, 2}) Bit(rank, 1);  // now b is the older one
  EXPECT_EQ(Flush(), Lines({"a#1>012"}));
  for (int rank : {0, 1, 2}) Ready(rank, Tensor("c"));
  EXPECT_EQ(Flush(), Lines({"c#3*-2>012"}));
  Bit(1, 2);  // was on its way
  EXPECT_FALSE(negotiator_->waiting());
  for (int rank : {0, 1, 2}) Ready(rank, Tensor("b"));
  EXPECT_EQ(Flush(), Lines({"b#4*-1>012"}));
}

TEST_F(NegotiatorTest, WhatIsWaitedForIsNotEvicted) {
  config_.cache_capacity = 1;
  Reset(3);
  show_ids_ = true;
  for (int rank : {0, 1, 2}) Ready(rank, Tensor("a"));
  EXPECT_EQ(Flush(), Lines({"a#1*>012"}));
  Bit(0, 1);
  for (int rank : {0, 1, 2}) Ready(rank, Tensor("b"));
  EXPECT_EQ(Flush(), Lines({"b>012"}));  // no room
  Bit(1, 1);
  Bit(2, 1);
  EXPECT_EQ(Flush(), Lines({"a#1>012"}));
}

TEST_F(NegotiatorTest, ACapacityOf0CachesNothing) {
  config_.cache_capacity = 0;
  Reset(3);
  show_ids_ = true;
  for (int rank : {0, 1, 2}) Ready(rank, Tensor("a"));
  EXPECT_EQ(Flush(), Lines({"a>012"}));
}

TEST_F(NegotiatorTest, TroubleOfACachedTensorIsTheSameAsOfAnother) {
  for (int rank : {0, 1, 2}) Ready(rank, Tensor("a"));
  EXPECT_EQ(Flush(), Lines({"a>012"}));
  Bit(0, 1);
  Bit(1, 1);
  Withdraw(1, Tensor("a"));
  EXPECT_EQ(Flush(), Lines({"a!1>1", "a!3>0"}));
  Bit(2, 1);
  EXPECT_EQ(Flush(), Lines({"a!3>2"}));
  Bit(0, 1);
  negotiator_->Leave(2, 2);
  EXPECT_EQ(Flush(), Lines({"a!9>0"}));
  Bit(1, 1);
  EXPECT_EQ(Flush(), Lines({"a!9>1"}));
  EXPECT_FALSE(negotiator_->waiting());
}

TEST_F(NegotiatorTest, AStallOfABitNamesTheMissing) {
  for (int rank : {0, 1, 2}) Ready(rank, Tensor("a"));
  EXPECT_EQ(Flush(), Lines({"a>012"}));
  Bit(0, 1);
  Bit(2, 1);
  now_ += seconds(61);
  std::vector<std::string> warnings;
  EXPECT_TRUE(negotiator_->Inspect(now_, &warnings).ok());
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(
      warnings[0].find("'a' has waited 61 s for rank 1 (host h) (its last call: allreduce 'a'"),
      std::string::npos)
      << warnings[0];
  Bit(1, 1);
  EXPECT_EQ(Flush(), Lines({"a>012"}));
}

TEST_F(NegotiatorTest, ALargeTensorGoesInPartsAndDelaysNoOther) {
  config_.fusion_threshold_bytes = 256 << 10;
  for (int rank : {0, 1, 2}) Ready(rank, Tensor("large", 150000));
  EXPECT_EQ(Flush(), Lines({"large[0+65536]>012"}));
  for (int rank : {0, 1, 2}) Ready(rank, Tensor("small"));
  EXPECT_EQ(Flush(), Lines({"large[65536+65536]>012", "small>012"}));
  EXPECT_EQ(Flush(), Lines({"large[131072+18928]>012"}));
  EXPECT_FALSE(negotiator_->has_output());
}

TEST_F(NegotiatorTest, AnEndFlushesAllParts) {
  config_.fusion_threshold_bytes = 256 << 10;
  for (int rank : {0, 1, 2}) Ready(rank, Tensor("large", 150000));
  const auto all = negotiator_->FlushAll();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_FALSE(all[1].is_last_part());
  EXPECT_TRUE(all[2].is_last_part());
}

}  // namespace
}  // namespace hvd
