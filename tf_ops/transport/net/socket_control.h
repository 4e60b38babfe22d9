// The control channel over sockets: length-prefixed frames, one epoll.
//
// A peer of this machine is also watched by its pidfd, since a child that it forked may
// keep its socket open after its death.
//
// While ranks start, a frame on a Unix socket may carry a descriptor.
//
// Threads: as ControlChannel says; the other calls are the control thread's too.

#ifndef TF_OPS_TRANSPORT_NET_SOCKET_CONTROL_H_
#define TF_OPS_TRANSPORT_NET_SOCKET_CONTROL_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "tf_ops/base/fd.h"
#include "tf_ops/transport/control.h"
#include "tf_ops/transport/net/acceptor.h"

namespace hvd {

class SocketControl final : public ControlChannel {
 public:
  // A longer frame is a broken peer: 64 MiB hold the names of half a million tensors.
  static constexpr uint32_t kMostFrameBytes = 64u << 20;

  // `acceptor` is stepped whenever it is ready; it may be null, and outlives this.
  SocketControl(FdTable* table, Acceptor* acceptor);

  // The end of process `pid` is the end of `peer`, whether it is attached yet or not.
  void Watch(int peer, pid_t pid);
  // `peer` speaks through `fd` from now on.
  void Attach(int peer, Fd fd);
  // False: this process has no descriptor left, and nothing works.
  bool valid() const { return epoll_.valid() && bell_.valid(); }
  bool attached(int peer) const { return links_.count(peer) > 0; }

  // As Send(); `passed` goes with the frame, unless the system refuses.  REQUIRES: a Unix socket to
  // `peer`.
  void SendWithFd(int peer, std::string frame, std::shared_ptr<const Fd> passed);
  // The next descriptor that came from `peer`; invalid when it was lost on the way, since one
  // of the two processes is at its limit.
  Fd TakeFd(int peer);
  // Lets the WaitAny() in progress return a kTimeout.  For the acceptor's callback.
  void Interrupt() { interrupted_ = true; }
  // From now on descriptors that come are dropped, and no Interrupt() is left over.
  void EndStart() { takes_fds_ = interrupted_ = false; }
  bool is_unix(int peer) const { return attached(peer) && links_.at(peer).is_unix; }

  void Send(int peer, std::string frame) override;
  ControlEvent WaitAny(Deadline deadline) override;
  void Wake() override { bell_.Ring(); }
  // A living process behind a network may still be out of reach.
  bool Watches(int peer) const override {
    return processes_.count(peer) > 0 && attached(peer) && links_.at(peer).stays_inside;
  }
  void Finish(Deadline deadline) override;

 private:
  struct Link {
    Fd fd;
    bool is_unix = false;
    bool stays_inside = false;  // within this machine
    std::string in;             // bytes not yet made into frames
    std::string out;            // from out_begin on: bytes not yet written
    size_t out_begin = 0;
    bool writing = false;    // epoll watches for room to write
    bool passes_fds = true;  // false: one was refused, and the later ones must not take its place
    // Descriptors to pass, each with the unwritten byte that it goes with.
    std::deque<std::pair<size_t, std::shared_ptr<const Fd>>> out_fds;
    std::deque<Fd> in_fds;
  };

  // One epoll_wait and all that follows from it.
  void Turn(Deadline deadline);
  // `to_the_end`: until the socket has no more.
  void ReadFrom(int peer, Link* link, bool to_the_end);
  // Its process has ended: what it still said, then its end.
  void OnProcessEnd(int peer);
  ssize_t Receive(Link* link, void* buffer, size_t size);
  // Writes what goes with one descriptor or none; what send(2) returns.
  ssize_t Transmit(Link* link);
  void CutFrames(int peer, Link* link);
  void Flush(int peer, Link* link);
  void Lose(int peer, const std::string& why);

  FdTable* const table_;
  Fd epoll_;
  Doorbell bell_;
  Acceptor* const acceptor_;
  bool takes_fds_ = true;
  bool interrupted_ = false;
  bool wake_pending_ = false;  // events_ holds a kWake
  std::map<int, Link> links_;
  std::map<int, Fd> processes_;  // pidfds
  std::deque<ControlEvent> events_;
};

}  // namespace hvd

#endif  // TF_OPS_TRANSPORT_NET_SOCKET_CONTROL_H_
