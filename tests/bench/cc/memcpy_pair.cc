// How fast two processes copy memory at once.
//
// Usage: memcpy_pair SECONDS.  Each copies 64 MiB between buffers of its own, again and again.
// Prints, for each of the two, the bytes copied per second: the size over the median time.

#include <atomic>
#include <cstring>
#include <iostream>
#include <vector>

#include "tests/bench/cc/median.h"
#include "tests/bench/cc/process_pair.h"

namespace hvd_bench {
namespace {

constexpr size_t kBytes = 64 << 20;
constexpr double kPatienceSeconds = 30;  // for the other process

struct Shared {
  std::atomic<int> begun{0};
  std::atomic<int> timed{0};
  double bytes_per_s[2] = {0, 0};
};

void Copy(const std::vector<char>& from, std::vector<char>* to) {
  std::memcpy(to->data(), from.data(), kBytes);
  asm volatile("" : : "r"(to->data()) : "memory");  // the copy may not be left out
}

bool Measure(int which, double seconds, Shared* shared) {
  const std::vector<char> from(kBytes, static_cast<char>(1 + which));
  std::vector<char> to(kBytes);
  Copy(from, &to);

  ++shared->begun;
  auto waiting = Clock::now();
  while (shared->begun < 2) {
    if (SecondsSince(waiting) > kPatienceSeconds) return false;
  }
  std::vector<double> samples_s;
  const auto begin = Clock::now();
  while (samples_s.empty() || SecondsSince(begin) < seconds) {
    const auto copy_begin = Clock::now();
    Copy(from, &to);
    samples_s.push_back(SecondsSince(copy_begin));
  }
  shared->bytes_per_s[which] = kBytes / Median(samples_s);

  ++shared->timed;
  waiting = Clock::now();
  while (shared->timed < 2) {  // the other still takes its time: go on beside it
    if (SecondsSince(waiting) > kPatienceSeconds) return false;
    Copy(from, &to);
  }
  return to == from;
}

int Main(double seconds) {
  auto* const shared = NewShared<Shared>();
  if (!RunPair([&](int which) { return Measure(which, seconds, shared); })) {
    std::cerr << "memcpy_pair: a process failed, or was not there in time" << std::endl;
    return 1;
  }
  std::cout << shared->bytes_per_s[0] << ' ' << shared->bytes_per_s[1] << std::endl;
  return 0;
}

}  // namespace
}  // namespace hvd_bench

int main(int argc, char** argv) { return hvd_bench::Main(hvd_bench::SecondsArgument(argc, argv)); }
