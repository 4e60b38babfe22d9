// Process sets that are added and removed, in the negotiation.

#include <gtest/gtest.h>

#include "tests/cc/coordinator/negotiator_fixture.h"
#include "tf_ops/collectives/collective.h"

namespace hvd {
namespace {

class SetsTest : public NegotiatorTest {
 protected:
  static Signature Adding(std::vector<int> ranks) {
    Signature s = Change(Kind::kAddProcessSet);
    s.ranks = std::move(ranks);
    return s;
  }
  static Signature Removing(int set) {
    Signature s = Change(Kind::kRemoveProcessSet);
    s.root = set;
    return s;
  }
  void All(const Signature& s) {
    for (int rank : {0, 1, 2}) Ready(rank, s);
  }
  // Follows the stream as the control loop does.
  void Add(std::vector<int> ranks) {
    sets_->Add(ranks);
    ports_->AddSet(ranks);
    negotiator_->AddSet();
  }

 private:
  static Signature Change(Kind kind) {
    Signature s = Tensor(kProcessSetsName);
    s.kind = kind;
    s.dtype = DType::kInt32;
    s.shapes = {{}};
    return s;
  }
};

TEST_F(SetsTest, AllRanksAddASetAndHearItsNumber) {
  Ready(0, Adding({0, 1}));
  Ready(2, Adding({0, 1}));
  EXPECT_FALSE(negotiator_->has_output());
  Ready(1, Adding({0, 1}));
  EXPECT_EQ(Flush(), Lines({"<process sets>>012"}));
  EXPECT_EQ(last_root_, 2);
  Add({0, 1});
  for (int rank : {1, 0}) Ready(rank, Tensor("x", 1, 2));
  EXPECT_EQ(Flush(), Lines({"x>01"}));
  for (int rank : {1, 0}) Bit(rank, 1);
  EXPECT_EQ(Flush(), Lines({"x>01"}));
}

TEST_F(SetsTest, RanksThatDisagreeHearOfIt) {
  Ready(0, Adding({0, 1}));
  Ready(1, Adding({0, 2}));
  Ready(2, Adding({0, 1}));
  EXPECT_EQ(Flush(), Lines({"<process sets>!3>0", "<process sets>!3>1", "<process sets>!3>2"}));
  EXPECT_NE(last_text_.find("rank 1 sent the set of ranks 0, 2, rank 0 sent ranks 0, 1"),
            std::string::npos)
      << last_text_;
  Ready(0, Removing(1));
  Ready(1, Adding({0, 1}));
  Ready(2, Removing(1));
  EXPECT_EQ(Flush().size(), 3U);
  EXPECT_NE(last_text_.find("rank 1 sent kind add_process_set, rank 0 sent remove_process_set"),
            std::string::npos)
      << last_text_;
}

TEST_F(SetsTest, WhatWaitsOnARemovedSetIsForgotten) {
  for (int rank : {1, 2}) Ready(rank, Tensor("x", 1, 1));
  EXPECT_EQ(Flush(), Lines({"x>12"}));
  Bit(1, 1);                        // waits by a bit
  Ready(2, Tensor("alone", 1, 1));  // and in full
  All(Removing(1));
  show_ids_ = true;
  EXPECT_EQ(Flush(), Lines({"-1>12", "<process sets>>012"}));
  EXPECT_FALSE(negotiator_->waiting());
  // On its way when the set went.
  Bit(2, 1);
  Ready(1, Tensor("alone", 1, 1));
  Refuse(1, Tensor("other", 1, 1));
  Withdraw(2, Tensor("alone", 1, 1));
  EXPECT_EQ(Flush(), Lines({}));
  EXPECT_FALSE(negotiator_->waiting());
}

TEST_F(SetsTest, WhatIsDecidedOnASetRunsToItsEndBeforeTheSetGoes) {
  config_.fusion_threshold_bytes = 256 << 10;
  for (int rank : {1, 2}) Ready(rank, Tensor("x", 150000, 1));
  All(Removing(1));
  EXPECT_EQ(Flush(), Lines({"x[0+65536]>12"}));
  EXPECT_EQ(Flush(), Lines({"x[65536+65536]>12"}));
  EXPECT_EQ(Flush(), Lines({"x[131072+18928]>12", "-1>12", "<process sets>>012"}));
  EXPECT_FALSE(negotiator_->waiting());
}

// Two threads of each rank may have asked for the same change, one after the other.
TEST_F(SetsTest, AChangeThatWasMadeAlreadyFails) {
  All(Removing(1));
  EXPECT_EQ(Flush(), Lines({"<process sets>>012"}));
  sets_->Remove(1);
  All(Removing(1));
  EXPECT_EQ(Flush(), Lines({"<process sets>!3>0", "<process sets>!3>1", "<process sets>!3>2"}));
  EXPECT_NE(last_text_.find("no process set 1 any more"), std::string::npos) << last_text_;
  All(Adding({0, 1, 2}));
  EXPECT_EQ(Flush().size(), 3U);
  EXPECT_NE(last_text_.find("process set 0 holds ranks 0, 1, 2 already"), std::string::npos)
      << last_text_;
}

TEST_F(SetsTest, NoSetChangesWithoutARankThatHasJoined) {
  Signature join = Tensor(kJoinName);
  join.kind = Kind::kJoin;
  join.shapes = {{}};
  Ready(1, join);
  for (int rank : {0, 2}) Ready(rank, Adding({0, 1}));
  EXPECT_EQ(Flush(), Lines({"<process sets>!3>0", "<process sets>!3>2"}));
  EXPECT_NE(last_text_.find("rank 1 (host h) has joined"), std::string::npos) << last_text_;
}

}  // namespace
}  // namespace hvd
