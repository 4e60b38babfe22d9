#include "tf_ops/transport/shm/shm_transport.h"

#include <utility>

#include "tf_ops/base/strings.h"
#include "tf_ops/transport/shm/allreduce.h"

namespace hvd {

ShmTransport::ShmTransport(ShmRank* rank, ShmMessages* messages, HostRanks members)
    : rank_(rank),
      messages_(messages),
      members_(std::make_shared<const HostRanks>(std::move(members))) {
  while ((*members_)[me_] != rank_->me()) ++me_;
}

Status ShmTransport::SendRecv(const SendRecvArgs& args) {
  if (failed_.ok()) {
    const auto place = [&](int r) { return r < 0 ? -1 : (*members_)[r]; };
    failed_ =
        messages_->SendRecv(place(args.to), args.out, place(args.from), args.in, args.deadline);
  }
  return failed_;
}

void ShmTransport::Launch(const CollectiveCall& call, CallDone done) {
  if (failed_.ok() && !IsNative(call.kind)) {
    failed_ = Status::Internal(StrCat("shared memory has no ", Name(call.kind), " of its own"));
  }
  if (failed_.ok()) failed_ = ShmAllreduce(rank_, members_, me_, call).Run();
  done(failed_);
}

}  // namespace hvd
