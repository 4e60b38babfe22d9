// Acceptor: turns strangers at the listening sockets into authenticated peers.
//
// It never waits: each pending handshake is a small state machine with its own
// deadline, and there are at most kMostPending of them; more strangers wait in the
// kernel's queue.
//
// Threads: the control thread only.

#ifndef TF_OPS_TRANSPORT_NET_ACCEPTOR_H_
#define TF_OPS_TRANSPORT_NET_ACCEPTOR_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <string>

#include "tf_ops/base/deadline.h"
#include "tf_ops/base/fd.h"
#include "tf_ops/transport/listeners.h"
#include "tf_ops/transport/net/handshake.h"

namespace hvd {

class Acceptor {
 public:
  static constexpr size_t kMostPending = 128;
  static constexpr std::chrono::seconds kHandshakeTime{10};
  // When all places are taken, who has one for longer gives it up: a rank calls again.
  static constexpr std::chrono::seconds kCrowdedTime{1};
  static constexpr std::chrono::seconds kPause{1};

  // Called with each connection that proved who it is.
  using OnPeer = std::function<void(Channel channel, int peer, Fd fd)>;
  // Called with trouble() when it changes.
  using OnTrouble = std::function<void(const std::string& trouble)>;

  // `world` and `table` outlive this object.
  Acceptor(const World& world, Listeners listeners, FdTable* table, OnPeer on_peer,
           OnTrouble on_trouble = {});

  // False: this process has no descriptor left, and nothing works.
  bool valid() const { return epoll_.valid(); }

  // Readable when Step() has something to do.
  int fd() const { return epoll_.get(); }

  // Why those who wait at a listener cannot be let in; empty when they can.
  const std::string& trouble() const { return trouble_; }

  // When Step() must run even if fd() stays silent.
  Deadline deadline() const;

  void Step();

 private:
  struct Pending {
    Fd fd;
    Challenge challenge;
    Claim claim;
    size_t got = 0;  // bytes of `claim`
    Deadline deadline;
  };

  using PendingMap = std::map<int, Pending>;  // by descriptor

  void AcceptAll(int listener);
  // Reads what there is; true when the handshake is over, well or badly.
  bool Advance(Pending* pending);
  PendingMap::iterator Drop(PendingMap::iterator pending);
  void SetTrouble(const std::string& trouble);
  void WatchListeners(bool on);
  bool crowded() const { return pending_.size() >= kMostPending; }
  // When a pending handshake is over in any case.
  Deadline EndOf(const Pending& pending) const;

  const World& world_;
  FdTable* const table_;
  const OnPeer on_peer_;
  const OnTrouble on_trouble_;
  Listeners listeners_;
  Fd epoll_;
  std::string trouble_;
  bool watching_ = false;
  Deadline paused_until_;  // never: accepting goes on
  PendingMap pending_;
};

}  // namespace hvd

#endif  // TF_OPS_TRANSPORT_NET_ACCEPTOR_H_
