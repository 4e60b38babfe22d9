#include "tf_ops/transport/process_sets.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace hvd {
namespace {

World Three() {
  World world;
  world.size = 3;
  world.process_sets = {{0, 1, 2}, {}, {1, 2}};  // 1 is of an older generation
  return world;
}

TEST(ProcessSets, NumbersAreNotUsedAgain) {
  ProcessSets sets(Three());
  EXPECT_EQ(sets.size(), 3);
  EXPECT_FALSE(sets.has(1) || sets.knew(1));
  EXPECT_FALSE(sets.has(-1) || sets.knew(3));
  EXPECT_EQ(sets.Add({0, 2}), 3);
  EXPECT_EQ(sets.Find({0, 2}), 3);
  sets.Remove(3);
  EXPECT_FALSE(sets.has(3));
  EXPECT_TRUE(sets.knew(3));
  EXPECT_EQ(sets.members(3), (std::vector<int>{0, 2}));
  EXPECT_EQ(sets.Find({0, 2}), -1);
  EXPECT_EQ(sets.Add({0, 2}), 4);
  EXPECT_EQ(sets.Find({0, 1, 2}), 0);
}

TEST(ProcessSets, OtherThreadsMayLookMeanwhile) {
  ProcessSets sets(Three());
  const std::vector<int>& members = sets.members(2);
  std::atomic<bool> stop{false};
  std::thread reader([&] {
    while (!stop) {
      for (int id = 0; id < sets.size(); ++id) {
        EXPECT_TRUE(!sets.has(id) || !sets.members(id).empty()) << id;
      }
    }
  });
  for (int i = 0; i < 1000; ++i) sets.Remove(sets.Add({0, 2}));
  stop = true;
  reader.join();
  EXPECT_EQ(members, (std::vector<int>{1, 2}));
}

}  // namespace
}  // namespace hvd
