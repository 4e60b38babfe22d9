// Thousands of random histories of the control plane (simulation.h).  Checked in each:
// - every request is done exactly once, and every history ends;
// - of one instance of a name either all ranks run, or none does; one that a rank refused
//   runs nowhere, and one that nothing disturbed runs;
// - every rank runs a subsequence of one stream, and a position is the same everywhere;
// - in a calm history each rank announces a name in full once, and by a bit from then on.
//
// A failing seed is printed, and the smallest history like it.

#include "tests/cc/coordinator/simulation.h"

#include <gtest/gtest.h>

#include "tf_ops/base/log.h"

namespace hvd {
namespace {

// Sanitizers make each history ten times longer.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr unsigned kHistories = 150;
#else
constexpr unsigned kHistories = 3000;
#endif

TEST(Simulation, EveryHistoryEndsWell) {
  SetLogging(LogLevel::kOff, false, 0);
  for (unsigned seed = 0; seed < kHistories; ++seed) {
    const HistoryOptions options = OptionsOf(seed);
    const std::string wrong = RunHistory(options);
    if (wrong.empty()) continue;
    const HistoryOptions small = Shrink(options);
    FAIL() << wrong << "\n  " << options.Text() << "\nsmallest: " << RunHistory(small) << "\n  "
           << small.Text();
  }
}

}  // namespace
}  // namespace hvd
