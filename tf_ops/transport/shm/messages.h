// ShmMessages: SendRecv through the slots of the sender's segment.
//
// A message is cut into chunks, one per slot, in slots that follow each other.  The sender's
// mailbox for the receiver says how many chunks it has posted and which message they belong
// to; the receiver counts what it has received.  The sender returns when its last chunk
// lies in a slot, so a short message costs it no wait.
//
// Threads: the data thread.

#ifndef TF_OPS_TRANSPORT_SHM_MESSAGES_H_
#define TF_OPS_TRANSPORT_SHM_MESSAGES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tf_ops/base/bytes.h"
#include "tf_ops/base/deadline.h"
#include "tf_ops/base/status.h"
#include "tf_ops/transport/shm/shm_rank.h"

namespace hvd {

class ShmMessages {
 public:
  // `rank` outlives this object.
  explicit ShmMessages(ShmRank* rank) : rank_(rank), peers_(rank->layout().ranks) {}

  // Transport::SendRecv between ranks of the host.
  Status SendRecv(int to, ConstBytes out, int from, Bytes in, Deadline deadline);

 private:
  // What has passed between this rank and another, both ways.
  struct Peer {
    uint64_t sent = 0;      // messages
    uint64_t posted = 0;    // chunks
    uint64_t got = 0;       // messages
    uint64_t received = 0;  // chunks
  };

  // The sending half of one call.
  struct Sending {
    int to;  // -1: nothing to do, or done
    ConstBytes rest;
    bool begun = false;
  };
  struct Receiving {
    int from;
    Bytes rest;
    bool begun = false;
    uint64_t slot = 0;
  };

  bool CanPost(const Sending& sending) const;
  void Post(Sending* sending);
  bool CanTake(const Receiving& receiving) const;
  Status Take(Receiving* receiving);

  ShmRank* const rank_;
  std::vector<Peer> peers_;  // by place in the host
  uint64_t next_slot_ = 0;
};

}  // namespace hvd

#endif  // TF_OPS_TRANSPORT_SHM_MESSAGES_H_
