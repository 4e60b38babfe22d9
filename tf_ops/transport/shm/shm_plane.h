// The plane of shared memory, for sets of ranks within one host.

#ifndef TF_OPS_TRANSPORT_SHM_SHM_PLANE_H_
#define TF_OPS_TRANSPORT_SHM_SHM_PLANE_H_

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tf_ops/base/deadline.h"
#include "tf_ops/base/fd.h"
#include "tf_ops/transport/net/host_memory.h"
#include "tf_ops/transport/net/plane.h"
#include "tf_ops/transport/net/stop.h"
#include "tf_ops/transport/shm/messages.h"
#include "tf_ops/transport/shm/segment.h"
#include "tf_ops/transport/shm/shm_rank.h"
#include "tf_ops/transport/topology.h"
#include "tf_ops/transport/world.h"

namespace hvd {

class ShmPlane final : public Plane, public HostMemory {
 public:
  // `staging_bytes`: of each rank's slots; the same on all ranks.  `spin`: how long a wait looks
  // before it sleeps.  `make_memory` is another one
  // in tests only.  The other arguments outlive this object.
  ShmPlane(const World& world, size_t staging_bytes, Clock::duration spin, FdTable* table,
           const Stop* stop, MakeMemory make_memory = MakeMemfd);

  std::string Make(Fd* fd) override;
  std::string Take(int rank, const Fd& fd) override;
  void Decide(bool used) override;

  bool Serves(const std::vector<int>& members) const override;
  std::unique_ptr<Transport> NewTransport(std::vector<int> members) override;
  void Adopt(int, Fd) override {}
  void SetTrouble(const std::string&) override {}
  void Abort() override;

 private:
  // The place of a rank in the host, or -1.
  int PlaceOf(int rank) const;

  const World& world_;
  const HostRanks host_;  // by place
  const ShmLayout layout_;
  const Clock::duration spin_;
  FdTable* const table_;
  const Stop* const stop_;
  const MakeMemory make_memory_;

  std::vector<std::shared_ptr<ShmSegment>> segments_;  // until Decide()
  std::mutex mutex_;                                   // Decide() against Abort()
  std::optional<ShmRank> rank_;                        // the verdict was yes
  std::optional<ShmMessages> messages_;
};

}  // namespace hvd

#endif  // TF_OPS_TRANSPORT_SHM_SHM_PLANE_H_
