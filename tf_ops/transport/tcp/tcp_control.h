// The control channel over TCP: length-prefixed frames, one epoll.
//
// Threads: as ControlChannel says; Attach is the control thread's too.

#ifndef TF_OPS_TRANSPORT_TCP_TCP_CONTROL_H_
#define TF_OPS_TRANSPORT_TCP_TCP_CONTROL_H_

#include <deque>
#include <map>
#include <string>

#include "tf_ops/base/fd.h"
#include "tf_ops/transport/control.h"
#include "tf_ops/transport/tcp/acceptor.h"

namespace hvd {

class TcpControl final : public ControlChannel {
 public:
  // A longer frame is a broken peer: 64 MiB hold the names of half a million tensors.
  static constexpr uint32_t kMostFrameBytes = 64u << 20;

  // `acceptor` is stepped whenever it is ready; it may be null, and outlives this.
  TcpControl(FdTable* table, Acceptor* acceptor);

  // `peer` speaks through `fd` from now on.
  void Attach(int peer, Fd fd);
  // False: this process has no descriptor left, and nothing works.
  bool valid() const { return epoll_.valid() && bell_.valid(); }
  bool attached(int peer) const { return links_.count(peer) > 0; }

  void Send(int peer, std::string frame) override;
  ControlEvent WaitAny(Deadline deadline) override;
  void Wake() override { bell_.Ring(); }
  void Finish(Deadline deadline) override;

 private:
  struct Link {
    Fd fd;
    std::string in;        // bytes not yet made into frames
    std::string out;       // bytes not yet written
    bool writing = false;  // epoll watches for room to write
  };

  // One epoll_wait and all that follows from it.
  void Turn(Deadline deadline);
  void ReadFrom(int peer, Link* link);
  void CutFrames(int peer, Link* link);
  void Flush(int peer, Link* link);
  void Lose(int peer, const std::string& why);

  Fd epoll_;
  Doorbell bell_;
  Acceptor* const acceptor_;
  std::map<int, Link> links_;
  std::deque<ControlEvent> events_;
};

}  // namespace hvd

#endif  // TF_OPS_TRANSPORT_TCP_TCP_CONTROL_H_
