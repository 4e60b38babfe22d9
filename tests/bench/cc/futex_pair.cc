// How long two processes take to wake each other.
//
// Usage: futex_pair SECONDS.  A round trip: one process writes a word in shared memory and wakes
// the other, which sleeps on that word, and does the same in return.  Only trips in which both
// really slept count.  Prints the median of these in seconds.

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>

#include <atomic>
#include <cstdint>
#include <iostream>
#include <vector>

#include "tests/bench/cc/median.h"
#include "tests/bench/cc/process_pair.h"

namespace hvd_bench {
namespace {

constexpr time_t kPatienceSeconds = 10;  // for the other process
constexpr uint32_t kOver = UINT32_MAX;   // in place of a trip's number

struct Shared {
  alignas(64) std::atomic<uint32_t> there{0};  // the trip that has reached process 1
  alignas(64) std::atomic<uint32_t> back{0};   // ... and has come back to process 0
  alignas(64) bool slept_there = false;        // in that trip; written before `back`
};

void Send(std::atomic<uint32_t>* word, uint32_t value) {
  word->store(value, std::memory_order_release);
  syscall(SYS_futex, word, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

enum class Wait { kFailed, kNoSleep, kSlept };

// Waits until `word` is no longer `old`.
Wait Await(std::atomic<uint32_t>* word, uint32_t old) {
  Wait result = Wait::kNoSleep;
  while (word->load(std::memory_order_acquire) == old) {
    const timespec patience = {kPatienceSeconds, 0};
    if (syscall(SYS_futex, word, FUTEX_WAIT, old, &patience, nullptr, 0) == 0) {
      result = Wait::kSlept;
    } else if (errno != EAGAIN && errno != EINTR) {
      return Wait::kFailed;
    }
  }
  return result;
}

bool Answer(Shared* shared) {
  for (uint32_t trip = 0;; ++trip) {
    const Wait wait = Await(&shared->there, trip);
    if (wait == Wait::kFailed) return false;
    if (shared->there == kOver) return true;
    shared->slept_there = wait == Wait::kSlept;
    Send(&shared->back, trip + 1);
  }
}

bool Ask(Shared* shared, double seconds, std::vector<double>* samples_s, uint32_t* trips) {
  const auto begin = Clock::now();
  for (; SecondsSince(begin) < seconds; ++*trips) {
    const auto trip_begin = Clock::now();
    Send(&shared->there, *trips + 1);
    const Wait wait = Await(&shared->back, *trips);
    const double trip_s = SecondsSince(trip_begin);
    if (wait == Wait::kFailed) return false;  // the other gives up by itself
    if (wait == Wait::kSlept && shared->slept_there) samples_s->push_back(trip_s);
  }
  Send(&shared->there, kOver);
  return !samples_s->empty();
}

int Main(double seconds) {
  auto* const shared = NewShared<Shared>();
  std::vector<double> samples_s;
  uint32_t trips = 0;
  const bool ok = RunPair([&](int which) {
    return which == 1 ? Answer(shared) : Ask(shared, seconds, &samples_s, &trips);
  });
  if (!ok) {
    std::cerr << "futex_pair: the other process did not answer, or in none of " << trips
              << " trips both slept" << std::endl;
    return 1;
  }
  std::cout << Median(samples_s) << std::endl;
  return 0;
}

}  // namespace
}  // namespace hvd_bench

int main(int argc, char** argv) { return hvd_bench::Main(hvd_bench::SecondsArgument(argc, argv)); }
