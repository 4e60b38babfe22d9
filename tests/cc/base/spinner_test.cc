#include "tf_ops/base/spinner.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace hvd {
namespace {

using std::chrono::microseconds;
using std::chrono::seconds;

TEST(Spinner, DoesNotLookWhereItIsOff) {
  Spinner spinner(Clock::duration::zero());
  EXPECT_FALSE(spinner.Until([]() -> bool { throw "it looked"; }));
}

TEST(Spinner, SeesWhatIsThere) {
  Spinner spinner(microseconds(50));
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(spinner.Until([] { return true; }));
}

TEST(Spinner, EndsInTimeOrWithTheCoreTaken) {
  Spinner spinner(microseconds(50));
  EXPECT_FALSE(spinner.Until([] { return false; }));
}

TEST(Spinner, LooksLessWhereItDoesNotPay) {
  Spinner spinner(microseconds(1));
  int looked = 0;
  for (int i = 0; i < 1000; ++i) {
    bool looks = false;
    (void)spinner.Until([&] {
      looks = true;
      return false;
    });
    looked += looks;
  }
  EXPECT_GE(looked, 1);
  EXPECT_LE(looked, 4 + 1000 / 16 + 1);  // pauses of 1, 3, 7 and then 15 waits
}

TEST(Spinner, SeesWhatAnotherThreadDoes) {
  std::atomic<int> turn{0};
  std::thread other([&] {
    for (int i = 1; i < 200; i += 2) {
      while (turn != i) std::this_thread::yield();
      turn = i + 1;
    }
  });
  Spinner spinner(seconds(10));
  for (int i = 0; i < 200; i += 2) {
    turn = i + 1;
    const bool seen = spinner.Until([&] { return turn == i + 2; });
    while (turn != i + 2) std::this_thread::yield();  // the other had the core for long
    EXPECT_TRUE(seen || turn == i + 2);
  }
  other.join();
}

}  // namespace
}  // namespace hvd
