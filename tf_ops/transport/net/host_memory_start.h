// HostMemoryStart: how the ranks of a host give each other their memory (host_memory.h), and
// agree whether they use it.
//
//   Each member sends its part to the leader of the host, or says why it has none.
//   The leader passes to each member the parts of all others, once it has them.
//   Each member answers when it has them, or says why one is of no use.
//   The leader decides; its welcome (tree_start.h) carries the verdict.
//
// The first obstacle that anybody meets decides against it.
//
// Threads: the control thread, during Start().

#ifndef TF_OPS_TRANSPORT_NET_HOST_MEMORY_START_H_
#define TF_OPS_TRANSPORT_NET_HOST_MEMORY_START_H_

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tf_ops/base/fd.h"
#include "tf_ops/base/status.h"
#include "tf_ops/base/wire.h"
#include "tf_ops/transport/net/host_memory.h"
#include "tf_ops/transport/net/socket_control.h"
#include "tf_ops/transport/topology.h"
#include "tf_ops/transport/world.h"

namespace hvd {

class HostMemoryStart {
 public:
  // All that is pointed to outlives this object.  `memory` is null when the ranks of a host
  // share none; `required`: no memory is then an error, instead of a line in the log.
  HostMemoryStart(const World& world, const Topology& topology, SocketControl* control,
                  HostMemory* memory, bool required);

  // Makes this rank's part.
  void Begin();
  // Drops the descriptors.
  void End() { parts_.clear(); }

  // A member, attached to `leader`: gives its part.
  void GiveTo(int leader);
  // The rest of a kPart or kTaken of `peer`; Internal when it is not due.
  Status OnPart(int peer, WireReader* reader);
  Status OnTaken(int peer, WireReader* reader);
  // The leader: does what has become possible.  FailedPrecondition: `required`, and not usable.
  Status Proceed();
  // A member: the leader's verdict.
  void OnVerdict(bool usable);

  // Nothing is left to find out.
  bool decided() const { return decided_; }
  // REQUIRES: decided().
  bool usable() const { return usable_; }
  // The leader: whether it waits for a word of `member`.
  bool Awaits(int member) const;

 private:
  bool is_leader() const { return host_[0] == rank_; }
  void Note(const std::string& obstacle);
  void SendPart(int rank, int to, const std::string& obstacle);
  void PassOn();
  Status Decide();

  const World& world_;
  SocketControl* const control_;
  HostMemory* const memory_;
  const bool required_;
  const int rank_;
  const std::vector<int> host_;  // its ranks, the leader first

  bool decided_;
  bool usable_ = false;   // the verdict
  std::string obstacle_;  // the first one found
  std::map<int, std::shared_ptr<const Fd>> parts_;
  std::set<int> received_;  // a member's: ranks whose parts have come

  // The leader's:
  std::set<int> given_;  // ranks whose part, or its absence, has come
  bool passed_on_ = false;
  std::set<int> have_all_;  // members that have all parts
};

}  // namespace hvd

#endif  // TF_OPS_TRANSPORT_NET_HOST_MEMORY_START_H_
