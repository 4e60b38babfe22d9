// The Transport of a set of ranks that share a host.

#ifndef TF_OPS_TRANSPORT_SHM_SHM_TRANSPORT_H_
#define TF_OPS_TRANSPORT_SHM_SHM_TRANSPORT_H_

#include <memory>

#include "tf_ops/transport/shm/messages.h"
#include "tf_ops/transport/shm/shm_rank.h"
#include "tf_ops/transport/transport.h"

namespace hvd {

class ShmTransport final : public Transport {
 public:
  // `members`: places in the host, ascending, rank->me() among them.  `rank` and `messages`
  // serve all sets of this rank, and outlive this object.
  ShmTransport(ShmRank* rank, ShmMessages* messages, HostRanks members);

  int rank() const override { return me_; }
  int size() const override { return static_cast<int>(members_->size()); }
  uint64_t moved() const override { return rank_->moved(); }
  Status SendRecv(const SendRecvArgs& args) override;
  bool IsNative(Kind kind) const override { return kind == Kind::kAllreduce; }
  void Launch(const CollectiveCall& call, CallDone done) override;

 private:
  ShmRank* const rank_;
  ShmMessages* const messages_;
  const std::shared_ptr<const HostRanks> members_;
  int me_ = 0;
  Status failed_;
};

}  // namespace hvd

#endif  // TF_OPS_TRANSPORT_SHM_SHM_TRANSPORT_H_
