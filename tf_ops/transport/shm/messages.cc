#include "tf_ops/transport/shm/messages.h"

#include <algorithm>
#include <cstring>

#include "tf_ops/base/strings.h"
#include "tf_ops/transport/shm/position.h"

namespace hvd {

bool ShmMessages::CanPost(const Sending& sending) const {
  if (sending.to < 0) return false;
  // A mailbox tells of one message: the one before must have arrived.
  if (!sending.begun && rank_->of(sending.to).received(rank_->me()) < peers_[sending.to].posted) {
    return false;
  }
  return rank_->SlotIsFree(next_slot_);
}

void ShmMessages::Post(Sending* sending) {
  Peer& peer = peers_[sending->to];
  Mailbox& mailbox = rank_->own().mailbox(sending->to);
  if (!sending->begun) {
    sending->begun = true;
    mailbox.number = peer.sent++;
    mailbox.bytes = sending->rest.size;
    mailbox.first_slot = next_slot_;
  }
  const size_t n = std::min<size_t>(sending->rest.size, rank_->layout().slot_bytes);
  if (n > 0) std::memcpy(rank_->own().slot(next_slot_), sending->rest.data, n);
  sending->rest = sending->rest.sub(n, sending->rest.size - n);
  rank_->FillFor(next_slot_, sending->to, ++peer.posted);
  next_slot_ = (next_slot_ + 1) % rank_->layout().slots;
  mailbox.posted = peer.posted;
  rank_->Ring(sending->to);
  if (sending->rest.empty()) sending->to = -1;
}

bool ShmMessages::CanTake(const Receiving& receiving) const {
  return receiving.from >= 0 &&
         rank_->of(receiving.from).mailbox(rank_->me()).posted > peers_[receiving.from].received;
}

Status ShmMessages::Take(Receiving* receiving) {
  const int from = receiving->from;
  Peer& peer = peers_[from];
  const Mailbox& mailbox = rank_->of(from).mailbox(rank_->me());
  const uint64_t slots = rank_->layout().slots;
  if (!receiving->begun) {
    receiving->begun = true;
    const uint64_t number = peer.got++;
    if (mailbox.number != number || mailbox.bytes != receiving->rest.size ||
        mailbox.first_slot >= slots) {
      return Status::Internal(StrCat(rank_->name(from), " sent message ", mailbox.number, " of ",
                                     mailbox.bytes, " bytes where message ", number, " of ",
                                     receiving->rest.size, " bytes was due"));
    }
    receiving->slot = mailbox.first_slot;
  }
  HVD_RETURN_IF_ERROR(
      rank_->CheckTag(from, receiving->slot, MessageTag(rank_->me(), peer.received + 1)));
  const size_t n = std::min<size_t>(receiving->rest.size, rank_->layout().slot_bytes);
  if (n > 0) std::memcpy(receiving->rest.data, rank_->of(from).slot(receiving->slot), n);
  receiving->rest = receiving->rest.sub(n, receiving->rest.size - n);
  receiving->slot = (receiving->slot + 1) % slots;
  rank_->own().received(from) = ++peer.received;
  rank_->Ring(from);
  if (receiving->rest.empty()) receiving->from = -1;
  return Status::Ok();
}

Status ShmMessages::SendRecv(int to, ConstBytes out, int from, Bytes in, Deadline deadline) {
  HVD_RETURN_IF_ERROR(rank_->aborted());
  Sending sending = {to, out};
  Receiving receiving = {from, in};
  while (sending.to >= 0 || receiving.from >= 0) {
    if (CanPost(sending)) {
      Post(&sending);
    } else if (CanTake(receiving)) {
      HVD_RETURN_IF_ERROR(Take(&receiving));
    } else {
      HVD_RETURN_IF_ERROR(rank_->Wait(
          deadline, [&] { return CanPost(sending) || CanTake(receiving); },
          [&] {
            return StrCat("no answer in time from ",
                          rank_->name(receiving.from >= 0 ? receiving.from : sending.to));
          }));
    }
  }
  return Status::Ok();
}

}  // namespace hvd
