#include "tf_ops/coordinator/run_watch.h"

#include <gtest/gtest.h>

#include <memory>

namespace hvd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const RunWatch::Time kStart{seconds(1000)};

class RunWatchTest : public testing::Test {
 protected:
  RunWatchTest() {
    world_.rank = 0;
    world_.size = 3;
    world_.hosts = {"h", "h", "h"};
    world_.process_sets = {{0, 1, 2}, {0}};
    sets_ = std::make_unique<ProcessSets>(world_);
    config_.stall_check_time_s = 60;
    watch_ = std::make_unique<RunWatch>(world_, *sets_, config_);
  }

  StreamRunner::Running Running(uint64_t sequence, uint64_t moved, std::vector<int> absent = {},
                                int set = 0) {
    auto signature = std::make_shared<Signature>();
    signature->kind = Kind::kBroadcast;
    signature->name = "w";
    signature->process_set = set;
    return {sequence, std::move(signature), std::move(absent), moved};
  }

  // What a look says: the warning, or the error.
  std::string Look(const std::optional<StreamRunner::Running>& running, Clock::duration after) {
    std::vector<std::string> warnings;
    const Status status = watch_->Look(running, kStart + after, &warnings);
    if (!status.ok()) return status.message();
    return warnings.empty() ? "" : warnings[0];
  }

  World world_;
  std::unique_ptr<ProcessSets> sets_;
  Config config_;
  std::unique_ptr<RunWatch> watch_;
};

TEST_F(RunWatchTest, WarnsAgainAndAgainOfWhatStandsStill) {
  EXPECT_EQ(Look(Running(7, 5), seconds(0)), "");
  EXPECT_EQ(Look(Running(7, 5), seconds(59)), "");
  EXPECT_EQ(Look(Running(7, 5), seconds(60)),
            "broadcast 'w' has stood still for 60 s and waits for one of rank 1 (host h), rank 2 "
            "(host h), which lives but is stopped or slow; this is only a warning");
  EXPECT_EQ(Look(Running(7, 5), seconds(119)), "");
  EXPECT_NE(Look(Running(7, 5), seconds(120)).find("for 120 s"), std::string::npos);
}

TEST_F(RunWatchTest, LetsAloneWhatMovesHoweverLongItTakes) {
  config_.stall_shutdown_time_s = 10;
  for (int i = 0; i < 100; ++i) EXPECT_EQ(Look(Running(7, i), seconds(9 * i)), "");
}

TEST_F(RunWatchTest, OneCallAfterAnotherIsNoStall) {
  config_.stall_shutdown_time_s = 10;
  for (int i = 0; i < 100; ++i) EXPECT_EQ(Look(Running(i, 5), seconds(9 * i)), "");
}

TEST_F(RunWatchTest, NothingRunsMeanwhile) {
  config_.stall_shutdown_time_s = 10;
  EXPECT_EQ(Look(std::nullopt, seconds(0)), "");
  EXPECT_EQ(Look(std::nullopt, seconds(100)), "");
  EXPECT_EQ(Look(Running(7, 5), seconds(101)), "");
}

TEST_F(RunWatchTest, EndsTheJobWhenAsked) {
  config_.stall_shutdown_time_s = 10;
  config_.stall_check_disable = true;
  EXPECT_EQ(Look(Running(7, 5), seconds(0)), "");
  EXPECT_EQ(Look(Running(7, 5), milliseconds(9999)), "");
  const std::string text = Look(Running(7, 5), seconds(10));
  EXPECT_NE(text.find("'w' has stood still for 10 s"), std::string::npos) << text;
  EXPECT_NE(text.find("(HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=10)"), std::string::npos) << text;
}

TEST_F(RunWatchTest, NamesOnlyThoseThatTakePart) {
  EXPECT_EQ(Look(Running(7, 5, {1}), seconds(0)), "");
  const std::string text = Look(Running(7, 5, {1}), seconds(60));
  EXPECT_NE(text.find("waits for rank 2 (host h), which"), std::string::npos) << text;
}

TEST_F(RunWatchTest, ARankAloneWaitsForNobody) {
  config_.stall_shutdown_time_s = 10;
  EXPECT_EQ(Look(Running(7, 5, {}, 1), seconds(0)), "");
  EXPECT_EQ(Look(Running(7, 5, {}, 1), seconds(1000)), "");
}

TEST_F(RunWatchTest, IsNotWantedWhereNothingIsToBeSaid) {
  EXPECT_TRUE(watch_->wanted());
  config_.stall_check_disable = true;
  EXPECT_FALSE(watch_->wanted());
  config_.stall_shutdown_time_s = 1;
  EXPECT_TRUE(watch_->wanted());
}

}  // namespace
}  // namespace hvd
