// Spinner: looks again and again for a short time before its thread sleeps, since waking a thread
// costs more than a short wait, above all on an idle core.
//
// Between looks the core is given away.  Looking ends early when another thread has taken it, and
// where it does not pay it is left out more and more often: a thread that sleeps wakes ahead of
// those that compute, one that looks stands in line with them.
//
// Threads: one.

#ifndef TF_OPS_BASE_SPINNER_H_
#define TF_OPS_BASE_SPINNER_H_

#include <sched.h>

#include <algorithm>

#include "tf_ops/base/deadline.h"

namespace hvd {

class Spinner {
 public:
  // Looks for `most` at a time; 0: never.
  explicit Spinner(Clock::duration most) : most_(most) {}

  // Whether `ready()` came true within the time.
  template <typename Ready>
  bool Until(Ready ready) {
    if (most_ <= Clock::duration::zero()) return false;
    if (left_out_ > 0) return --left_out_, false;
    const Clock::time_point begin = Clock::now();
    Clock::time_point before = begin;
    do {
      if (ready()) return pause_ = 0, true;
      sched_yield();
      const Clock::time_point now = Clock::now();
      if (now - before > kTaken) break;
      before = now;
    } while (before - begin < most_);
    pause_ = std::min(2 * pause_ + 1, kMostPause);
    left_out_ = pause_;
    return false;
  }

 private:
  // A yield that took longer gave the core to a thread with work to do.
  static constexpr std::chrono::microseconds kTaken{20};
  // Waits in a row that are not worth a look.
  static constexpr int kMostPause = 255;

  const Clock::duration most_;
  int pause_ = 0;
  int left_out_ = 0;
};

}  // namespace hvd

#endif  // TF_OPS_BASE_SPINNER_H_
