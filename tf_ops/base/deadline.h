// Deadline: the one point in time by which a whole operation must end.
//
// It is made once, at the top, and handed down: a callee never makes a longer one.

#ifndef TF_OPS_BASE_DEADLINE_H_
#define TF_OPS_BASE_DEADLINE_H_

#include <algorithm>
#include <chrono>

namespace hvd {

using Clock = std::chrono::steady_clock;

// A knob's seconds as a duration.
inline Clock::duration Seconds(double s) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(s));
}

class Deadline {
 public:
  // Never: the wait has a living peer behind it, and Abort() ends it.
  Deadline() : at_(Clock::time_point::max()) {}
  explicit Deadline(Clock::time_point at) : at_(at) {}
  static Deadline Never() { return Deadline(); }
  static Deadline After(Clock::duration d) { return Deadline(Clock::now() + d); }

  bool never() const { return at_ == Clock::time_point::max(); }
  bool passed() const { return !never() && Clock::now() >= at_; }
  Clock::time_point at() const { return at_; }

  // For poll(2) and epoll_wait(2): milliseconds, rounded up, -1 for ever.
  int poll_ms() const {
    if (never()) return -1;
    const auto left =
        std::chrono::duration_cast<std::chrono::microseconds>(at_ - Clock::now()).count();
    if (left <= 0) return 0;
    return static_cast<int>(std::min<long long>((left + 999) / 1000, 1 << 30));
  }

  friend Deadline Earlier(Deadline a, Deadline b) { return a.at_ < b.at_ ? a : b; }

 private:
  Clock::time_point at_;
};

}  // namespace hvd

#endif  // TF_OPS_BASE_DEADLINE_H_
