// Two processes that share some memory: what the programs for the machine's limits have in common.

#ifndef TESTS_BENCH_CC_PROCESS_PAIR_H_
#define TESTS_BENCH_CC_PROCESS_PAIR_H_

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <new>

namespace hvd_bench {

using Clock = std::chrono::steady_clock;

inline double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Seconds from the command line, or the end of the program.
inline double SecondsArgument(int argc, char** argv) {
  const double seconds = argc == 2 ? std::atof(argv[1]) : 0;
  if (seconds > 0) return seconds;
  std::cerr << "usage: " << argv[0] << " SECONDS, more than 0" << std::endl;
  std::exit(2);
}

// A T in memory that processes forked later share.  Never freed: the program ends soon.
template <typename T>
T* NewShared() {
  void* const memory =
      mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    std::cerr << "no shared memory of " << sizeof(T) << " bytes" << std::endl;
    std::exit(1);
  }
  return new (memory) T;
}

// Runs body(0) here and body(1) in a forked process, which does not outlive this one.  `body`
// returns whether all went well, and is bounded in time.  True: it did on both sides.
template <typename Body>
bool RunPair(Body body) {
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) return false;
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    _exit(getppid() == parent && body(1) ? 0 : 1);
  }
  const bool here = body(0);
  int status = 0;
  if (waitpid(child, &status, 0) != child) return false;
  return here && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace hvd_bench

#endif  // TESTS_BENCH_CC_PROCESS_PAIR_H_
