// Thousands of jobs whose ranks get damaged frames (job.h): they end, in order or by an abort
// that names who sent what, and never run what does not fit.

#include <gtest/gtest.h>

#include "tests/cc/fuzz/job.h"
#include "tf_ops/base/log.h"

namespace hvd {
namespace {

constexpr unsigned kCases = 2000;

TEST(LoopFuzz, EveryDamagedJobEnds) {
  SetLogging(LogLevel::kOff, false, 0);
  JobTotals totals;
  for (unsigned seed = 0; seed < kCases; ++seed) {
    const std::string wrong = RunDamagedJob(seed, &totals);
    ASSERT_EQ(wrong, "") << "seed " << seed;
  }
  // The jobs did what they are for.
  EXPECT_GT(totals.damaged, static_cast<int>(kCases));
  EXPECT_GT(totals.noticed, static_cast<int>(kCases) / 4);
  EXPECT_GT(totals.ran, static_cast<int>(kCases) * 10);
  EXPECT_GT(totals.cached_in, static_cast<int>(kCases));
}

}  // namespace
}  // namespace hvd
