// TreeStart: how the ranks of a generation come together along the Topology.
//
// Each rank calls its parent and is called by its children.  Members of a host send up
//   kPart    a rank's part of the host's memory (host_memory_start.h)
//   kTaken   all parts of the host have come; or why one is of no use
// and leaders
//   kCame    ranks of the subtree that have connected, so that rank 0 knows who has not
//   kReady   the whole subtree is there, and its hosts have decided about their memory
// Down go, once all have come,
//   kPart    the other ranks' parts
//   kWelcome everything is there: Start() has succeeded; and the verdict on the memory
// Either way, kGiveUp: the sender's Start() has failed, and why.
//
// Nobody speaks of anything else before it has been welcomed, and nobody reads on after
// that: so frames of a neighbor that was welcomed earlier stay in the control channel.
//
// Threads: the control thread.  The call to the parent has a thread of its own, which ends
// before Run() does.

#ifndef TF_OPS_TRANSPORT_NET_TREE_START_H_
#define TF_OPS_TRANSPORT_NET_TREE_START_H_

#include <atomic>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tf_ops/base/deadline.h"
#include "tf_ops/base/status.h"
#include "tf_ops/transport/net/acceptor.h"
#include "tf_ops/transport/net/host_memory.h"
#include "tf_ops/transport/net/host_memory_start.h"
#include "tf_ops/transport/net/socket_control.h"
#include "tf_ops/transport/net/start_step.h"
#include "tf_ops/transport/net/stop.h"
#include "tf_ops/transport/topology.h"
#include "tf_ops/transport/world.h"

namespace hvd {

struct TreeStartArgs {
  const World* world;
  FdTable* table;
  const Stop* stop;
  Acceptor* acceptor;
  SocketControl* control;
  // Null: the ranks of a host share no memory.
  HostMemory* memory;
  // No memory is then an error, instead of a line in the log.
  bool memory_required;
  // Within a host, ranks call each other by Unix sockets where there are any.
  bool use_unix;
};

class TreeStart {
 public:
  // What `args` points to outlives this object.
  explicit TreeStart(const TreeStartArgs& args);

  // False: this process has no descriptor left, and nothing works.
  bool valid() const { return call_.hang_up.valid(); }

  // Once.  Ends early with the Stop's reason, which comes with Wake() of the control channel.
  // DeadlineExceeded names the ranks that did not come, PeerLost those that left.
  Status Run(Deadline deadline);

  // `peer` opened a control connection.
  void OnPeer(int peer, Fd fd);

 private:
  // The call to the parent.
  struct Call {
    explicit Call(FdTable* table) : hang_up(table) {}
    Doorbell hang_up;
    std::atomic<bool> over{false};
    Status status;  // and fd: once over
    Fd fd;
    std::thread thread;
  };

  Status Proceed(Deadline deadline);
  // Takes over the parent's connection once it is there.
  Status AttachParent();
  void StartCall(Deadline deadline);
  void EndCall();
  Status OnFrame(int peer, const std::string& frame);
  void Came(const std::vector<int>& ranks);
  void SendUp(StartStep step, const std::vector<int>& ranks);
  bool IsComplete() const;
  void Welcome();
  void GiveUp(const Status& why, Deadline deadline);
  Status TooLate() const;

  const World& world_;
  const TreeStartArgs a_;
  const Topology topology_;
  const int rank_;
  const int parent_;
  HostMemoryStart memory_;

  Call call_;
  bool calling_ = false;   // the outcome of call_ is not known here yet
  bool started_ = false;   // Run() is under way
  bool welcomed_ = false;  // done
  bool reported_ = false;  // kReady was sent
  bool woken_ = false;     // a kWake was swallowed
  std::set<int> came_;     // of my subtree
  std::set<int> ready_;    // children that lead a host
  std::set<int> lost_;     // neighbors
};

}  // namespace hvd

#endif  // TF_OPS_TRANSPORT_NET_TREE_START_H_
