// FrameCheck: what a frame must fulfil beyond being readable before the control loop
// believes it.
//
// A frame that passes holds nothing that a rank could not have sent at some moment: whatever
// follows it may index by rank, process set and member without looking again.  All errors
// are Internal and name the rank that sent it.
//
// Threads: the control thread.

#ifndef TF_OPS_COORDINATOR_FRAME_CHECK_H_
#define TF_OPS_COORDINATOR_FRAME_CHECK_H_

#include <string>

#include "tf_ops/base/status.h"
#include "tf_ops/coordinator/cache.h"
#include "tf_ops/coordinator/message.h"
#include "tf_ops/coordinator/ports.h"
#include "tf_ops/coordinator/request.h"
#include "tf_ops/transport/topology.h"
#include "tf_ops/transport/world.h"

namespace hvd {

class FrameCheck {
 public:
  // All outlive this object.  `cache` follows the whole stream that passes here.
  FrameCheck(const World& world, const ProcessSets& sets, const Topology& topology,
             const Ports& ports, const Cache& cache)
      : world_(world), sets_(sets), topology_(topology), ports_(ports), cache_(cache) {}

  // Not ok: `frame` goes the wrong way between `peer` and this rank, or speaks of what `peer`
  // cannot speak of.  Its responses are looked at by rank and process set only.
  Status Check(int peer, const Frame& frame) const;

  // Not ok: no rank 0 makes such a response.  It came from `peer`.
  // REQUIRES: it passed in a frame, and what it names by id has been looked up.
  Status CheckResponse(int peer, const Response& response) const;

  // Not ok: tensor `i` of `response`, which is to run, is not what this rank announced as `mine`.
  // REQUIRES: CheckResponse() found nothing.
  Status CheckMine(int peer, const Response& response, size_t i, const Request& mine) const;

  // "rank 3 (host b) sent `what`; ..."
  Status Bad(int peer, const std::string& what) const;

 private:
  const std::vector<int>& members(int set) const { return sets_.members(set); }
  bool IsBelow(int rank, int top) const;
  bool IsMember(int set, int rank) const;
  Status CheckReport(int peer, const Report& report) const;
  Status CheckReady(int peer, const Report& report, const CachedReady& ready) const;
  Status CheckAbsent(int peer, const Response& response) const;
  // REQUIRES: `set` are the members of the response's process set.
  Status CheckSizes(int peer, const Response& response, size_t i,
                    const std::vector<int>& set) const;

  const World& world_;
  const ProcessSets& sets_;
  const Topology& topology_;
  const Ports& ports_;
  const Cache& cache_;
};

}  // namespace hvd

#endif  // TF_OPS_COORDINATOR_FRAME_CHECK_H_
