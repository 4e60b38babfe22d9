#include "tf_ops/coordinator/liveness.h"

#include <gtest/gtest.h>

#include "tests/cc/coordinator/simulated_rank.h"
#include "tf_ops/base/log.h"
#include "tf_ops/coordinator/control_loop.h"

namespace hvd {
namespace {

using std::chrono::seconds;
using Time = Liveness::Time;

const Time kStart{seconds(1000)};

TEST(Liveness, AsksFourTimesAndNamesTheSilent) {
  Liveness liveness(seconds(60));
  EXPECT_FALSE(liveness.next_time().has_value());
  liveness.Begin(1, kStart);
  liveness.Begin(2, kStart);
  EXPECT_EQ(liveness.Ask(kStart), (std::vector<int>{1, 2}));
  EXPECT_EQ(liveness.next_time(), kStart + seconds(15));
  EXPECT_TRUE(liveness.Ask(kStart + seconds(14)).empty());
  liveness.Heard(2, kStart + seconds(30));
  EXPECT_EQ(liveness.Silent(kStart + seconds(60)), -1);
  EXPECT_EQ(liveness.Silent(kStart + seconds(61)), 1);
  liveness.End(1);
  EXPECT_EQ(liveness.Silent(kStart + seconds(61)), -1);
  EXPECT_EQ(liveness.Ask(kStart + seconds(61)), (std::vector<int>{2}));
  liveness.EndAll();
  EXPECT_FALSE(liveness.next_time().has_value());
}

// Ranks 0 and 1 over a network, as their control loops see it.
class UnwatchedTest : public testing::Test {
 protected:
  UnwatchedTest() : mail_(2) {
    SetLogging(LogLevel::kOff, false, 0);
    World job;
    job.size = 2;
    job.hosts = {"a", "a"};
    job.process_sets = {{0, 1}};
    zero_.Begin(job, 0, config_, &mail_, kStart, /*watches=*/false);
    one_.Begin(job, 1, config_, &mail_, kStart, /*watches=*/false);
  }

  std::vector<ControlEvent> MailOf(int r) {
    auto& queue = mail_[r].from[1 - r];
    std::vector<ControlEvent> events(queue.begin(), queue.end());
    queue.clear();
    return events;
  }

  Config config_;
  std::vector<Mail> mail_;
  SimulatedRank zero_;
  SimulatedRank one_;
};

TEST_F(UnwatchedTest, SignsOfLifeKeepTheJob) {
  for (Time now = kStart; now < kStart + seconds(600); now = zero_.loop->NextTimer().at()) {
    EXPECT_TRUE(zero_.loop->Turn(MailOf(0), now));
    EXPECT_TRUE(one_.loop->Turn(MailOf(1), now));
    EXPECT_TRUE(zero_.loop->Turn(MailOf(0), now));
    ASSERT_GT(zero_.loop->NextTimer().at(), now);
  }
  EXPECT_TRUE(zero_.loop->failure().ok()) << zero_.loop->failure();
}

TEST_F(UnwatchedTest, SilenceEndsItAndNothingIsDueAfterwards) {
  for (Time now = kStart; now <= kStart + seconds(90); now += seconds(5)) {
    EXPECT_TRUE(zero_.loop->Turn({}, now));
  }
  EXPECT_EQ(zero_.loop->failure().code(), Code::kPeerLost) << zero_.loop->failure();
  EXPECT_NE(zero_.loop->failure().message().find("rank 1"), std::string::npos);
  EXPECT_TRUE(zero_.loop->NextTimer().never());
}

TEST_F(UnwatchedTest, WhoIsOverIsAskedNoMore) {
  EXPECT_TRUE(zero_.loop->Turn({}, kStart));
  one_.loop->Stop(0);
  EXPECT_TRUE(one_.loop->Turn(MailOf(1), kStart));   // goodbye
  EXPECT_TRUE(zero_.loop->Turn(MailOf(0), kStart));  // farewell
  EXPECT_FALSE(one_.loop->Turn(MailOf(1), kStart));  // over
  EXPECT_TRUE(zero_.loop->Turn(MailOf(0), kStart));
  EXPECT_TRUE(zero_.loop->Turn({{ControlEvent::Type::kClosed, 1, {}, "it ended"}}, kStart));
  EXPECT_TRUE(zero_.loop->failure().ok()) << zero_.loop->failure();
  EXPECT_TRUE(zero_.loop->NextTimer().never());
}

}  // namespace
}  // namespace hvd
