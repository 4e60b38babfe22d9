// The control channel: small frames between this rank and the ranks it negotiates
// with, and a bell for this process's own threads.
//
// It is apart from Transport because its thread waits for anyone at once, which a
// SendRecv cannot.
//
// It reaches the neighbors of this rank in the Topology (topology.h), and nobody else.
//
// Threads: the control thread makes every call but Wake(), which any thread makes.

#ifndef TF_OPS_TRANSPORT_CONTROL_H_
#define TF_OPS_TRANSPORT_CONTROL_H_

#include <string>

#include "tf_ops/base/deadline.h"
#include "tf_ops/base/status.h"

namespace hvd {

struct ControlEvent {
  enum class Type {
    kFrame,    // `frame` came from `peer`
    kClosed,   // `peer` is gone, `text` says how it looked from here
    kWake,     // Wake() was called, once or more often, since the last kWake
    kTimeout,  // the deadline passed
  };
  Type type = Type::kTimeout;
  int peer = -1;
  std::string frame;
  std::string text;
};

class ControlChannel {
 public:
  virtual ~ControlChannel() = default;

  // Queues a frame; never waits.  A peer that is gone gets nothing: its kClosed event
  // tells.
  virtual void Send(int peer, std::string frame) = 0;

  // The next event.  Events of one peer keep their order; each peer is closed once.
  virtual ControlEvent WaitAny(Deadline deadline) = 0;

  virtual void Wake() = 0;

  // Whether the end of `peer` shows by itself, as kClosed, even if its connection stays open.
  // Where not, only heartbeats tell.
  virtual bool Watches(int peer) const = 0;

  // Ends the channel in order: what was queued is delivered and the peers have read it,
  // or the deadline has passed.  No other call follows.
  virtual void Finish(Deadline deadline) = 0;
};

}  // namespace hvd

#endif  // TF_OPS_TRANSPORT_CONTROL_H_
