#include "tf_ops/coordinator/ports.h"

#include <gtest/gtest.h>

#include <numeric>

namespace hvd {
namespace {

// One host of so many ranks, of which rank 0 hears all others: as many ports.
class PortsTest : public testing::TestWithParam<int> {
 protected:
  PortsTest() {
    world_.size = GetParam();
    world_.hosts.assign(world_.size, "h");
    world_.process_sets = {std::vector<int>(world_.size)};
    std::iota(world_.process_sets[0].begin(), world_.process_sets[0].end(), 0);
    topology_.emplace(world_.hosts);
    sets_.emplace(world_);
    ports_.emplace(world_, *sets_, *topology_);
  }

  World world_;
  std::optional<Topology> topology_;
  std::optional<ProcessSets> sets_;
  std::optional<Ports> ports_;
};

TEST_P(PortsTest, AGatheringIsCompleteWhenAllHaveComeOnce) {
  ASSERT_EQ(ports_->size(), GetParam());
  Gathering gathering(*ports_, 0, {});
  std::vector<int64_t> sizes;
  for (int port = ports_->size() - 1; port >= 0; --port) {
    EXPECT_FALSE(gathering.complete());
    EXPECT_FALSE(gathering.came(port));
    gathering.Come(port, {ports_->peer(port) * 10});
    for (int other = 0; other < ports_->size(); ++other) {
      EXPECT_EQ(gathering.came(other), other >= port) << port << " " << other;
    }
  }
  EXPECT_TRUE(gathering.complete());
  for (int rank = 0; rank < world_.size; ++rank) sizes.push_back(rank * 10);
  EXPECT_EQ(gathering.AllSizes(), sizes);
}

TEST_P(PortsTest, OneWithoutSizesKnowsItsRanks) {
  Gathering gathering(*ports_, 0, {});
  std::vector<int> ranks;
  gathering.Come(0, {});
  gathering.Come(ports_->size() - 1, {});
  gathering.ForRanks([&](int rank, std::vector<int64_t> sizes) {
    ranks.push_back(rank);
    EXPECT_TRUE(sizes.empty());
  });
  EXPECT_EQ(ranks, std::vector<int>({0, ports_->peer(ports_->size() - 1)}));
  EXPECT_TRUE(gathering.AllSizes().empty());
}

// As bits, and where they are too many for that.
INSTANTIATE_TEST_SUITE_P(Ranks, PortsTest, testing::Values(2, 63, 64, 65, 130));

}  // namespace
}  // namespace hvd
