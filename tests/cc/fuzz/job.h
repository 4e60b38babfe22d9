// Job: the control planes of a whole job in one thread, between which frames are damaged.
//
// Ranks bring tensors, cancel, refuse and stop at random.  Now and then a frame on its way is
// damaged, replaced, repeated or swallowed.  Checked at each moment:
// - what reaches the data plane fits the requests that it is to run on;
// - a rank that gives up over a damaged frame names the rank that sent it;
// and at the end, when all have stopped and their neighbors are gone:
// - every request is done exactly once, and every loop has ended.
//
// One seed is one history.

#ifndef TESTS_CC_FUZZ_JOB_H_
#define TESTS_CC_FUZZ_JOB_H_

#include <string>

namespace hvd {

// Of all histories that were run.
struct JobTotals {
  int damaged = 0;    // frames
  int noticed = 0;    // damaged frames over which their receiver gave up
  int ran = 0;        // requests that the data plane ran
  int cached_in = 0;  // tensors that a response named by their cache id alone
};

// Empty: all went well; else what went wrong.
std::string RunDamagedJob(unsigned seed, JobTotals* totals);

}  // namespace hvd

#endif  // TESTS_CC_FUZZ_JOB_H_
