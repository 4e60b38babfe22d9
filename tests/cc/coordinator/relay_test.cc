#include "tf_ops/coordinator/relay.h"

#include <gtest/gtest.h>

#include <numeric>

namespace hvd {
namespace {

using std::chrono::milliseconds;
using What = Report::What;

// Rank 2 leads host b with ranks 3 and 4, and hears the leaders of three more hosts.
class RelayTest : public testing::Test {
 protected:
  RelayTest() {
    world_.hosts = {"a", "a", "b", "b", "b"};
    for (int h = 2; h < 12; ++h) world_.hosts.push_back("h" + std::to_string(h));
    world_.size = static_cast<int>(world_.hosts.size());
    world_.rank = 2;
    world_.process_sets = {std::vector<int>(world_.size), {2, 3}, {0, 4}};
    std::iota(world_.process_sets[0].begin(), world_.process_sets[0].end(), 0);
    topology_.emplace(world_.hosts);
    sets_.emplace(world_);
    ports_.emplace(world_, *sets_, *topology_);
    relay_.emplace(world_, *sets_, *ports_, cache_);
    for (int set = 0; set < 3; ++set) {
      Signature s;
      s.name = "t" + std::to_string(set);
      s.process_set = set;
      s.kind = set == 1 ? Kind::kAllgather : Kind::kAllreduce;
      s.shapes = {{1}};
      cache_.Insert(set + 1, std::make_shared<const Signature>(s));
    }
  }

  // "S:1" the whole subtree is ready with id 1, "R3:1" rank 3 alone, "A3:name" in full.
  std::vector<std::string> Up() {
    std::vector<std::string> out;
    for (const Report& report : relay_->Take(now_)) {
      const std::string rank = std::to_string(report.rank);
      if (report.what == What::kAnnouncement) {
        out.push_back("A" + rank + ":" + report.announcement.signature.name);
      }
      for (const CachedReady& ready : report.ready) {
        std::string text = report.what == What::kSubtreeReady ? "S" : "R" + rank;
        text += ":" + std::to_string(ready.id);
        for (int64_t size : ready.sizes) text += "," + std::to_string(size);
        out.push_back(text);
      }
    }
    return out;
  }
  void Bit(int peer, CacheId id, std::vector<int64_t> sizes = {}) {
    relay_->Hear(peer, {{What::kSubtreeReady, peer, {{id, std::move(sizes)}}, {}}}, now_);
  }
  void Announce(int rank, const std::string& name, int set) {
    Report report;
    report.what = What::kAnnouncement;
    report.rank = rank;
    report.announcement.signature.name = name;
    report.announcement.signature.process_set = set;
    relay_->Hear(rank, {report}, now_);
  }

  void AnnounceJoin(int rank) {
    Report report;
    report.what = What::kAnnouncement;
    report.rank = rank;
    report.announcement.signature.name = "<join>";
    report.announcement.signature.kind = Kind::kJoin;
    relay_->Hear(rank, {report}, now_);
  }

  using Lines = std::vector<std::string>;
  World world_;
  Cache cache_;
  std::optional<Topology> topology_;
  std::optional<ProcessSets> sets_;
  std::optional<Ports> ports_;
  std::optional<Relay> relay_;
  Relay::Time now_{milliseconds(5000)};
};

TEST_F(RelayTest, SaysOnceWhatIsReadyOnAllBelow) {
  Bit(3, 1);
  Bit(2, 1);
  EXPECT_EQ(Up(), Lines({}));
  for (int child : topology_->children(2)) {
    if (child != 3) Bit(child, 1);
  }
  EXPECT_EQ(Up(), Lines({"S:1"}));
  EXPECT_FALSE(relay_->next_time().has_value());
}

TEST_F(RelayTest, WaitsForTheRanksOfTheSetAlone) {
  Bit(4, 3);
  EXPECT_EQ(Up(), Lines({"S:3"}));
}

TEST_F(RelayTest, SizesAreInTheOrderOfRanks) {
  Bit(3, 2, {33});
  Bit(2, 2, {22});
  EXPECT_EQ(Up(), Lines({"S:2,22,33"}));
}

TEST_F(RelayTest, WhatStaysIncompleteGoesUpByRank) {
  Bit(3, 2, {33});
  ASSERT_TRUE(relay_->next_time().has_value());
  now_ = *relay_->next_time();
  EXPECT_EQ(Up(), Lines({"R3:2,33"}));
  // The rest follows at once, and the next time is as the first.
  EXPECT_FALSE(relay_->next_time().has_value());
  Bit(2, 2, {22});
  EXPECT_EQ(Up(), Lines({"R2:2,22"}));
  Bit(3, 2, {1});
  Bit(2, 2, {2});
  EXPECT_EQ(Up(), Lines({"S:2,2,1"}));
}

TEST_F(RelayTest, OrderIsKeptPerTensor) {
  Bit(3, 1);
  Announce(4, "other", 0);
  Announce(3, "t0", 0);  // a withdrawal, say
  EXPECT_EQ(Up(), Lines({"A4:other", "R3:1", "A3:t0"}));
}

TEST_F(RelayTest, ARankThatLeftIsNotWaitedFor) {
  Bit(3, 1);
  relay_->Leave(4);
  EXPECT_EQ(Up(), Lines({"R3:1"}));
  Bit(2, 1);
  EXPECT_EQ(Up(), Lines({"R2:1"}));
  Bit(2, 2, {1});  // another set
  EXPECT_EQ(Up(), Lines({}));
}

TEST_F(RelayTest, WhileARankHasJoinedAllGoesUpByRank) {
  Bit(3, 1);
  AnnounceJoin(4);
  EXPECT_EQ(Up(), Lines({"R3:1", "A4:<join>"}));
  Bit(2, 1);
  EXPECT_EQ(Up(), Lines({"R2:1"}));
  Bit(3, 2, {1});  // a set without it
  EXPECT_EQ(Up(), Lines({}));
  Bit(2, 2, {1});
  EXPECT_EQ(Up(), Lines({"S:2,1,1"}));
}

TEST_F(RelayTest, OnceAllHaveJoinedOrOneHasTakenItBackAllIsAsBefore) {
  for (const std::vector<int>& only : {std::vector<int>(), std::vector<int>({4})}) {
    AnnounceJoin(4);
    EXPECT_EQ(Up(), Lines({"A4:<join>"}));
    Signature join;
    join.name = "<join>";
    join.kind = Kind::kJoin;
    Response over;
    over.only = only;
    if (!only.empty()) over.status = Status::Cancelled("cancelled");
    over.tensors = {{0, false, std::make_shared<const Signature>(join)}};
    relay_->Pass(over);
    Bit(3, 1);
    EXPECT_EQ(Up(), Lines({}));
    Bit(2, 1);
    for (int child : topology_->children(2)) {
      if (child != 3) Bit(child, 1);
    }
    EXPECT_EQ(Up(), Lines({"S:1"}));
  }
}

TEST_F(RelayTest, WhatIsEvictedIsForgotten) {
  Bit(3, 1);
  Response evicts;
  evicts.evicted = {1};
  ASSERT_TRUE(cache_.Apply(&evicts));
  relay_->Pass(evicts);
  now_ += Relay::kMostHeld;
  EXPECT_EQ(Up(), Lines({}));
  Bit(2, 1);  // late
  EXPECT_EQ(Up(), Lines({}));
}

TEST_F(RelayTest, AResponseGoesWhereItsRanksAre) {
  Response response;
  response.process_set = 1;  // ranks 2 and 3
  EXPECT_TRUE(relay_->IsFor(response, 0));
  EXPECT_TRUE(relay_->IsFor(response, ports_->PortOf(3)));
  EXPECT_FALSE(relay_->IsFor(response, ports_->PortOf(4)));
  response.only = {3};
  EXPECT_FALSE(relay_->IsFor(response, 0));
  EXPECT_TRUE(relay_->IsFor(response, ports_->PortOf(3)));
}

}  // namespace
}  // namespace hvd
