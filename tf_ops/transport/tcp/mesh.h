// The data connections of one rank: one per peer, made at the first SendRecv with it.
//
// Of two ranks the higher one calls and the lower one is called, so both know who has
// to wait for whom.
//
// Threads: Get() the data thread; Adopt() and SetTrouble() the control thread; Wake() any.

#ifndef TF_OPS_TRANSPORT_TCP_MESH_H_
#define TF_OPS_TRANSPORT_TCP_MESH_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "tf_ops/base/deadline.h"
#include "tf_ops/base/fd.h"
#include "tf_ops/base/status.h"
#include "tf_ops/transport/net/stop.h"
#include "tf_ops/transport/world.h"

namespace hvd {

// A connection and how far it has come: messages carry their number, so that two ranks
// out of step find out at once.
struct DataLink {
  Fd fd;
  uint64_t sent = 0;
  uint64_t received = 0;
};

class TcpMesh {
 public:
  // How long a peer is waited for that could not be let in if it came.
  static constexpr std::chrono::seconds kMostTrouble{10};

  // All that is pointed to outlives this object.
  TcpMesh(const World& world, FdTable* table, const Stop* stop,
          Clock::duration most_trouble = kMostTrouble)
      : world_(world),
        table_(table),
        stop_(stop),
        most_trouble_(most_trouble),
        links_(world.size),
        arrived_(world.size) {}

  // The connection to `peer`; it stays valid as long as this object.  Internal: this process
  // cannot open or accept connections.
  Status Get(int peer, Deadline deadline, DataLink** link);

  // `peer` has called.  A second call of the same peer is dropped.
  void Adopt(int peer, Fd fd);

  // Why nobody who calls can be let in; empty: they can.
  void SetTrouble(const std::string& trouble);

  // Ends the wait in Get(), after `stop` was set.
  void Wake();

  // Ends all connections in use, so that a peer that waits for this rank finds out even
  // when nobody tells it.  Data thread, after a failure.
  void HangUp();

  const Stop& stop() const { return *stop_; }
  const World& world() const { return world_; }

 private:
  Status CallFor(int peer, Deadline deadline);
  Status AwaitCall(int peer, Deadline deadline);

  const World& world_;
  FdTable* const table_;
  const Stop* const stop_;
  const Clock::duration most_trouble_;
  std::vector<DataLink> links_;  // the data thread's

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_:
  std::vector<Fd> arrived_;  // called us, not yet used
  std::string trouble_;
  Clock::time_point trouble_since_;  // if there is any
};

}  // namespace hvd

#endif  // TF_OPS_TRANSPORT_TCP_MESH_H_
