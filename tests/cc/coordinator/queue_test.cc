#include "tf_ops/coordinator/queue.h"

#include <gtest/gtest.h>

namespace hvd {
namespace {

using What = Announcement::What;

class QueueTest : public testing::Test {
 protected:
  static Signature Tensor(const std::string& name, int set = 0) {
    Signature s;
    s.name = name;
    s.process_set = set;
    s.kind = Kind::kAllreduce;
    s.dtype = DType::kFloat32;
    s.shapes = {{1}};
    return s;
  }

  uint64_t Add(const std::string& name, int set = 0, Code code = Code::kOk) {
    auto request = std::make_shared<Request>();
    request->signature = Tensor(name, set);
    request->done = [this, name](const Status& status) {
      done_.push_back(name + ":" + CodeName(status.code()));
    };
    uint64_t id = 0;
    EXPECT_EQ(queue_.Add(request, &id).code(), code);
    return id;
  }

  // "#7" a bit, "+a" in full, "!a" a refusal, "-a" a withdrawal, "~a" a dropped gradient.
  std::vector<std::string> Reports() {
    std::vector<std::string> out;
    for (const Report& report : queue_.TakeReports(3, cache_)) {
      EXPECT_EQ(report.rank, 3);
      for (const CachedReady& r : report.ready) out.push_back("#" + std::to_string(r.id));
      if (report.what != Report::What::kAnnouncement) continue;
      const char* const marks = "+!-~";
      out.push_back(marks[static_cast<int>(report.announcement.what)] +
                    report.announcement.signature.name);
    }
    return out;
  }

  using Lines = std::vector<std::string>;
  Cache cache_;
  Lines done_;
  RequestQueue queue_{1, [] {}};
};

TEST_F(QueueTest, ReportsInOrderAndByBitWhatIsCached) {
  cache_.Insert(7, std::make_shared<const Signature>(Tensor("b")));
  Add("a");
  Add("b");
  queue_.Refuse(Tensor("c"), "no");
  EXPECT_EQ(Reports(), Lines({"+a", "#7", "!c"}));
  EXPECT_EQ(Reports(), Lines({}));
}

TEST_F(QueueTest, SplitsTravelBesideTheBit) {
  const auto alltoall = [](std::vector<int64_t> splits) {
    Signature s = Tensor("x");
    s.kind = Kind::kAlltoall;
    s.shapes[0][0] = splits[0] + splits[1];
    s.splits = std::move(splits);
    return s;
  };
  cache_.Insert(7, std::make_shared<const Signature>(alltoall({1, 2})));
  auto request = std::make_shared<Request>();
  request->signature = alltoall({4, 0});
  uint64_t id = 0;
  EXPECT_TRUE(queue_.Add(request, &id).ok());
  const std::vector<Report> reports = queue_.TakeReports(3, cache_);
  ASSERT_EQ(reports.size(), 1u);
  ASSERT_EQ(reports[0].ready.size(), 1u);
  EXPECT_EQ(reports[0].ready[0].id, 7u);
  EXPECT_EQ(reports[0].ready[0].sizes, (std::vector<int64_t>{4, 0}));
}

TEST_F(QueueTest, AChangedSignatureGoesInFull) {
  Signature other = Tensor("a");
  other.shapes = {{2}};
  cache_.Insert(7, std::make_shared<const Signature>(other));
  Add("a");
  EXPECT_EQ(Reports(), Lines({"+a"}));
}

TEST_F(QueueTest, CancelledBeforeAnybodyHeardItEndsHereAndIsRefused) {
  queue_.Cancel(Add("a"));
  EXPECT_EQ(Reports(), Lines({"!a"}));
  EXPECT_EQ(done_, Lines({"a:Cancelled"}));
  Add("a");  // the name is free
  EXPECT_EQ(Reports(), Lines({"+a"}));
}

TEST_F(QueueTest, AGradientCancelledBeforeAnybodyHeardOfItIsDropped) {
  auto request = std::make_shared<Request>();
  request->signature = Tensor("g");
  request->signature.gradient = true;
  request->done = [this](const Status& status) { done_.push_back(CodeName(status.code())); };
  uint64_t id = 0;
  EXPECT_TRUE(queue_.Add(request, &id).ok());
  queue_.Cancel(id);
  EXPECT_EQ(Reports(), Lines({"~g"}));
  EXPECT_EQ(done_, Lines({"Cancelled"}));
}

TEST_F(QueueTest, CancelledAfterwardsIsWithdrawnOnce) {
  const uint64_t id = Add("a");
  EXPECT_EQ(Reports(), Lines({"+a"}));
  queue_.Cancel(id);
  queue_.Cancel(id);
  EXPECT_EQ(Reports(), Lines({"-a"}));
  EXPECT_TRUE(done_.empty());
}

TEST_F(QueueTest, WhatLeavesTheCacheIsReportedAgain) {
  cache_.Insert(7, std::make_shared<const Signature>(Tensor("a")));
  Add("a");
  EXPECT_EQ(Reports(), Lines({"#7"}));
  cache_.Erase(7);
  queue_.ReportAgain(0, "a", 6);  // not how it was reported
  EXPECT_EQ(Reports(), Lines({}));
  queue_.ReportAgain(0, "a", 7);
  EXPECT_EQ(Reports(), Lines({"+a"}));
  queue_.ReportAgain(0, "a", 7);  // it was reported in full since
  EXPECT_EQ(Reports(), Lines({}));
}

TEST_F(QueueTest, ACancellationOutlivesTheCacheEntry) {
  cache_.Insert(7, std::make_shared<const Signature>(Tensor("a")));
  const uint64_t id = Add("a");
  EXPECT_EQ(Reports(), Lines({"#7"}));
  queue_.Cancel(id);
  EXPECT_EQ(Reports(), Lines({"-a"}));
  // The coordinator dropped the bit, and so the withdrawal too.
  cache_.Erase(7);
  queue_.ReportAgain(0, "a", 7);
  EXPECT_EQ(Reports(), Lines({"!a"}));
  EXPECT_EQ(done_, Lines({"a:Cancelled"}));
}

TEST_F(QueueTest, WhatIsScheduledIsNotReportedAgain) {
  cache_.Insert(7, std::make_shared<const Signature>(Tensor("a")));
  Add("a");
  EXPECT_EQ(Reports(), Lines({"#7"}));
  EXPECT_NE(queue_.Schedule(0, "a"), nullptr);
  cache_.Erase(7);
  queue_.ReportAgain(0, "a", 7);
  EXPECT_EQ(Reports(), Lines({}));
}

TEST_F(QueueTest, AClosedSetEndsWhatIsNotScheduledOnItAndTakesNoMore) {
  Add("scheduled", 1);
  Add("announced", 1);
  EXPECT_EQ(Reports().size(), 2U);
  const auto scheduled = queue_.Schedule(1, "scheduled");
  ASSERT_NE(scheduled, nullptr);
  Add("queued", 1);
  Add("other", 2);
  queue_.Refuse(Tensor("refused", 1), "no");
  queue_.CloseSet(1, Status::FailedPrecondition("it went"));
  EXPECT_EQ(done_, Lines({"announced:FailedPrecondition", "queued:FailedPrecondition"}));
  EXPECT_EQ(Reports(), Lines({"+other"}));
  Add("late", 1, Code::kFailedPrecondition);
  queue_.Refuse(Tensor("late", 1), "no");
  EXPECT_EQ(Reports(), Lines({}));
  queue_.Finish(scheduled, Status::Ok());
  EXPECT_EQ(done_.back(), "scheduled:Ok");
}

}  // namespace
}  // namespace hvd
