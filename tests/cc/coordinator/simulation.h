// A simulation of the whole control plane: every rank's queue, cache, relay and control loop,
// with simulated links, data plane and time.  One seed is one history.
//
// Ranks run a program of steps: in each, every rank brings the same tensors of its process
// sets in an order of its own.  Meanwhile messages are late, callers cancel, ranks refuse,
// leave, join, die or disagree, tensors change their shape, and the cache is too small.

#ifndef TESTS_CC_COORDINATOR_SIMULATION_H_
#define TESTS_CC_COORDINATOR_SIMULATION_H_

#include <string>

namespace hvd {

struct HistoryOptions {
  unsigned seed = 0;
  int ranks = 2;
  int hosts = 1;
  int sets = 0;  // beside the global one
  int steps = 1;
  int tensors = 1;  // per set and step
  int cache_capacity = 1024;
  int threshold_bytes = 0;   // fusion
  int trouble_percent = 0;   // of requests that are refused or cancelled
  int change_percent = 0;    // of steps in which a tensor changes its shape
  int disagree_percent = 0;  // of requests whose shape differs from the others'
  int odd_percent = 0;       // of requests that differ in what need not agree
  int abandon_percent = 0;   // of the last step's tensors: some ranks bring them, and give up
  bool leavers = false;      // ranks may end in order before the others
  bool joiners = false;      // ranks have fewer steps than others, and join
  bool set_changes = false;  // in each step a process set is added or removed
  int deaths = 0;            // ranks that die

  std::string Text() const;
  // Whether nothing goes wrong, and the cache has room for all.
  bool Calm() const;
};

// What a seed stands for: 2 to 64 ranks on 1 to 8 hosts, and the rest.
HistoryOptions OptionsOf(unsigned seed);

// Runs a history.  Empty: all went well; else what went wrong.
std::string RunHistory(const HistoryOptions& options);

// The smallest history that still goes wrong, found by making one option smaller at a time.
HistoryOptions Shrink(HistoryOptions failing);

}  // namespace hvd

#endif  // TESTS_CC_COORDINATOR_SIMULATION_H_
