// Spinner: looks again and again for a short time before its thread sleeps, since waking a thread
// costs more than a short wait, above all on an idle core.
//
// Between looks the core is given away to whoever can use it.  Where looking does not pay it is
// left out more and more often, and for long where a thread that computes has taken the core: a
// thread that sleeps wakes ahead of those, one that looks stands in line with them.
//
// Threads: one.

#ifndef TF_OPS_BASE_SPINNER_H_
#define TF_OPS_BASE_SPINNER_H_

#include <sched.h>

#include <algorithm>
#include <utility>

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
    if (left_out_ > 0) {
      --left_out_;
      return false;
    }
    Clock::time_point now = Clock::now();
    const Clock::time_point end = now + most_;
    do {
      if (ready()) {
        pause_ = 0;
        return true;
      }
      sched_yield();
      const Clock::time_point before = std::exchange(now, Clock::now());
      if (now - before > kTaken) {
        left_out_ = kPauseWhenTaken;
        return ready();
      }
    } while (now < end);
    left_out_ = pause_ = std::min(2 * pause_ + 1, kMostPause);
    return false;
  }

 private:
  // Waits in a row that are not worth a look.
  static constexpr int kMostPause = 15;
  // A yield that takes longer gave the core to a thread that computes.
  static constexpr std::chrono::microseconds kTaken{200};
  static constexpr int kPauseWhenTaken = 1023;

  const Clock::duration most_;
  int pause_ = 0;
  int left_out_ = 0;
};

}  // namespace hvd

#endif  // TF_OPS_BASE_SPINNER_H_
