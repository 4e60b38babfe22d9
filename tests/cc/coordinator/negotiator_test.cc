#include "tf_ops/coordinator/negotiator.h"

#include <gtest/gtest.h>

#include <numeric>

namespace hvd {
namespace {

using std::chrono::seconds;
using What = Announcement::What;

class NegotiatorTest : public testing::Test {
 protected:
  void SetUp() override { Reset(3); }

  void Reset(int size) {
    world_ = {};
    world_.size = size;
    world_.hosts.assign(size, "h");
    world_.process_sets.resize(2);
    world_.process_sets[0].resize(size);
    std::iota(world_.process_sets[0].begin(), world_.process_sets[0].end(), 0);
    world_.process_sets[1] = {1, 2};
    negotiator_.emplace(world_, config_);
  }

  static Signature Tensor(const std::string& name, int64_t n = 1, int set = 0) {
    Signature s;
    s.name = name;
    s.kind = Kind::kAllreduce;
    s.dtype = DType::kFloat32;
    s.shape = {n};
    s.process_set = set;
    return s;
  }

  void Ready(int rank, const Signature& s) { negotiator_->Hear(rank, {What::kReady, s, {}}, now_); }
  void Refuse(int rank, const Signature& s) {
    negotiator_->Hear(rank, {What::kRefused, s, "no"}, now_);
  }
  void Withdraw(int rank, const Signature& s) {
    negotiator_->Hear(rank, {What::kWithdrawn, s, "cancelled"}, now_);
  }

  // "name>ranks" of each response, errors with their code: "x!3>0,1".
  std::vector<std::string> Flush() {
    std::vector<std::string> out;
    for (const auto& o : negotiator_->Flush()) {
      std::string text;
      for (const Signature& s : o.response.tensors) text += (text.empty() ? "" : "+") + s.name;
      if (!o.response.status.ok()) {
        text += "!" + std::to_string(static_cast<int>(o.response.status.code()));
      }
      text += ">";
      for (int r : o.recipients) text += std::to_string(r);
      out.push_back(text);
      last_text_ = o.response.status.message();
    }
    return out;
  }

  using Lines = std::vector<std::string>;
  World world_;
  Config config_;
  std::optional<Negotiator> negotiator_;
  Negotiator::Time now_{seconds(1000)};
  std::string last_text_;
};

TEST_F(NegotiatorTest, RunsWhenAllHaveComeInTheOrderOfCompletion) {
  for (int rank : {2, 0}) {
    Ready(rank, Tensor("a", 1 << 26));  // too large to fuse
    Ready(rank, Tensor("b", 1 << 26));
  }
  EXPECT_FALSE(negotiator_->has_output());
  Ready(1, Tensor("b", 1 << 26));
  Ready(1, Tensor("a", 1 << 26));
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
  negotiator_->Leave(2);
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
  negotiator_->Leave(0);
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
  EXPECT_NE((warnings[0] + warnings[1]).find("rank 2 (host h) (last: nothing yet)"),
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
  EXPECT_NE(last_text_.find("rank 0 waits in 'a'"), std::string::npos) << last_text_;
  EXPECT_FALSE(negotiator_->waiting());
}

}  // namespace
}  // namespace hvd
