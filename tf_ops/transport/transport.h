// A Transport moves bytes between the ranks of one process set.
//
// It is the only door to sockets and shared memory and, later, to MPI and NCCL: code
// outside transport/<name>/ never includes a vendor header.
//
// Threads: the data thread makes every call but moved(); Fabric::Abort() ends one from outside.
// Errors: always a Status, never an exception.
//
// To add one between processes: implement this class and Plane (net/plane.h) in
// transport/<name>/, add one row to transport/registry.cc, and one line each to
// tests/cc/transport/conformance_test.cc and process_test.cc.

#ifndef TF_OPS_TRANSPORT_TRANSPORT_H_
#define TF_OPS_TRANSPORT_TRANSPORT_H_

#include <cstdint>

#include "tf_ops/base/bytes.h"
#include "tf_ops/base/deadline.h"
#include "tf_ops/base/status.h"
#include "tf_ops/transport/collective_call.h"

namespace hvd {

// One step of an algorithm: send `out` to `to` while filling `in` from `from`.  A side
// whose peer is -1 takes no part.  Ranks are ranks of the set, in [0, size()).
struct SendRecvArgs {
  int to = -1;
  ConstBytes out;
  int from = -1;
  Bytes in;
  Deadline deadline;
};

class Transport {
 public:
  virtual ~Transport() = default;

  virtual int rank() const = 0;  // of this process in the set, in [0, size())
  virtual int size() const = 0;  // ranks of the set, >= 1

  // Grows while bytes move to or from this rank, on this set or others.  Any thread.
  virtual uint64_t moved() const = 0;

  // Sends and receives at once, so a ring of calls cannot deadlock.  Returns when
  // `in` is full and `out` may be reused.
  //
  // REQUIRES: `in` and `out` do not overlap; `to` and `from` are not this rank.
  // REQUIRES: each peer makes the matching calls in the same order, with equal sizes.
  //
  // Fails with kDeadlineExceeded, or kPeerLost once a peer is lost or Abort() was
  // called, or kInternal when the peer sent another size.  A transport that has
  // failed stays failed.
  virtual Status SendRecv(const SendRecvArgs& args) = 0;

  // Whether Launch() serves calls of `kind`, better than a generic algorithm on SendRecv
  // does.  The same on all ranks of the set, and for the transport's whole life.
  virtual bool IsNative(Kind) const { return false; }

  // Starts a call that IsNative(); `done` gets its outcome, during the call or later, with
  // the errors of SendRecv.
  virtual void Launch(const CollectiveCall& call, CallDone done) {
    (void)call;
    done(Status::Internal("this transport has no collective of its own"));
  }
};

}  // namespace hvd

#endif  // TF_OPS_TRANSPORT_TRANSPORT_H_
