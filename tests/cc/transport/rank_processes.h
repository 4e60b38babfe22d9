// Ranks that are processes: forked from the test, which must have one thread.
//
// Each child runs as one rank with descriptors of its own, and ends with what it found
// wrong.  The parent can kill, stop and continue it.

#ifndef TESTS_CC_TRANSPORT_RANK_PROCESSES_H_
#define TESTS_CC_TRANSPORT_RANK_PROCESSES_H_

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "tf_ops/base/deadline.h"
#include "tf_ops/base/fd.h"
#include "tf_ops/transport/fabric.h"

namespace hvd {

// A rank, as the child sees itself: its fabric has started, and a thread does what the
// control thread does with a neighbor that is gone: it aborts.
struct RankProcess {
  Fabric& fabric;
  int rank;
  int tell_fd;
  int life_fd;

  // Lets the parent know how far this rank is (RankProcesses::Await).
  void Tell(char event) const;
  // Waits until the parent has called Release().
  void AwaitRelease() const;
  // Forks a child that holds all descriptors of this rank until Release().
  void ForkHolder() const;
};

class RankProcesses {
 public:
  // What a rank does; empty: all went well.
  using Body = std::function<std::string(const RankProcess&)>;

  // Starts `size` ranks of one host over `transport`.
  RankProcesses(const std::string& transport, int size, const Body& body);
  // Kills what is left.
  ~RankProcesses();

  void Release();
  void Signal(int rank, int signal) const;
  // Waits until `rank` tells `event`; false: it ended, or not within `patience`.
  bool Await(int rank, char event, Clock::duration patience = std::chrono::seconds(30));
  // Waits until `rank` has ended.  Empty: all went well there.
  std::string Join(int rank, Clock::duration patience = std::chrono::seconds(30));

 private:
  struct Child {
    pid_t pid;
    int pipe;
    std::string told;  // and not awaited yet
    bool joined = false;
  };
  // Reads what `child` tells; false: nothing came by then, or there is no more.
  static bool Listen(Child* child, Deadline deadline);

  FdTable table_;
  int life_[2];  // until the parent closes it
  std::vector<Child> children_;
};

}  // namespace hvd

#endif  // TESTS_CC_TRANSPORT_RANK_PROCESSES_H_
