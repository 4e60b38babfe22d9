#include "tf_ops/transport/topology.h"

#include <gtest/gtest.h>

#include <numeric>

namespace hvd {
namespace {

using Ranks = std::vector<int>;

TEST(Topology, OneHostIsAStarAroundRank0) {
  const Topology t({"a", "a", "a"});
  EXPECT_EQ(t.parent(0), -1);
  EXPECT_EQ(t.children(0), (Ranks{1, 2}));
  EXPECT_EQ(t.parent(2), 0);
  EXPECT_EQ(t.neighbors(2), (Ranks{0}));
  EXPECT_EQ(t.subtree(0), (Ranks{0, 1, 2}));
  EXPECT_EQ(t.host(1), (Ranks{0, 1, 2}));
}

TEST(Topology, EachHostHasALeader) {
  const Topology t({"a", "b", "a", "b", "b"});
  EXPECT_EQ(t.num_hosts(), 2);
  EXPECT_EQ(t.parent(2), 0);
  EXPECT_EQ(t.parent(1), 0);
  EXPECT_EQ(t.parent(3), 1);
  EXPECT_EQ(t.children(0), (Ranks{1, 2}));
  EXPECT_EQ(t.subtree(1), (Ranks{1, 3, 4}));
  EXPECT_EQ(t.neighbors(1), (Ranks{0, 3, 4}));
  EXPECT_TRUE(t.same_host(0, 2));
  EXPECT_FALSE(t.same_host(0, 1));
}

TEST(Topology, ManyHostsAreATreeOfBoundedFanIn) {
  std::vector<std::string> hosts;
  for (int h = 0; h < 100; ++h) hosts.insert(hosts.end(), 2, std::to_string(h));
  const Topology t(hosts);
  Ranks all(t.size());
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(t.subtree(0), all);
  for (int r : all) {
    EXPECT_LE(t.children(r).size(), Topology::kFanIn + 1u);
    // One way up, ending at rank 0.
    int steps = 0;
    for (int up = r; up != 0; up = t.parent(up)) ASSERT_LT(++steps, 5) << r;
    for (int c : t.children(r)) EXPECT_EQ(t.parent(c), r);
  }
}

}  // namespace
}  // namespace hvd
