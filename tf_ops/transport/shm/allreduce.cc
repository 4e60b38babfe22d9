#include "tf_ops/transport/shm/allreduce.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "tf_ops/base/slices.h"
#include "tf_ops/base/strings.h"
#include "tf_ops/device/reduce.h"
#include "tf_ops/transport/shm/position.h"

namespace hvd {
namespace {

// Up to here one step with more reading is faster than two with less.
constexpr int64_t kSmallBytes = 16 << 10;
// From here on results are gone from the caches before anybody reads them.
constexpr int64_t kStreamedBytes = 8 << 20;

}  // namespace

ShmAllreduce::ShmAllreduce(ShmRank* rank, const std::shared_ptr<const HostRanks>& members, int me,
                           const CollectiveCall& call)
    : rank_(rank),
      members_(members),
      me_(me),
      call_(call),
      item_bytes_(ItemBytes(call.dtype)),
      total_(call.TotalCount()),
      block_(static_cast<int64_t>(rank->layout().slot_bytes / item_bytes_)),
      blocks_((total_ + block_ - 1) / block_),
      sliced_(n() > 2 && total_ * static_cast<int64_t>(item_bytes_) > kSmallBytes),
      store_(total_ * static_cast<int64_t>(ItemBytes(call.in_memory())) >= kStreamedBytes
                 ? Store::kStreamed
                 : Store::kCached),
      inputs_(call),
      outputs_(call),
      found_(n()),
      contributions_(n()) {}

Status ShmAllreduce::Run() {
  HVD_RETURN_IF_ERROR(rank_->aborted());
  HVD_RETURN_IF_ERROR(rank_->BeginCall(call_.sequence));
  if (static_cast<uint64_t>(blocks_) > kMostBlocks) {
    return Status::InvalidArgument(StrCat("allreduce of ", total_, " elements in ", blocks_,
                                          " blocks of ", block_, "; at most ", kMostBlocks,
                                          " blocks are possible: raise HOROVOD_STAGING_BYTES"));
  }
  while (taken_ < blocks_) {
    if (CanTake()) {
      HVD_RETURN_IF_ERROR(Take());
    } else if (CanReduce()) {
      HVD_RETURN_IF_ERROR(Reduce());
    } else if (CanPack()) {
      Pack();
    } else {
      HVD_RETURN_IF_ERROR(rank_->Wait(
          Deadline::Never(), [&] { return CanTake() || CanReduce() || CanPack(); },
          [] { return std::string(); }));
    }
  }
  return Status::Ok();
}

// Calls of one block each also go round the slots, and need not wait for each other.
uint64_t ShmAllreduce::SlotOf(int64_t b) const {
  return (call_.sequence + static_cast<uint64_t>(b)) % rank_->layout().slots;
}

uint64_t ShmAllreduce::Done(int64_t blocks) const {
  return PositionOf(call_.sequence, static_cast<uint64_t>(blocks));
}

bool ShmAllreduce::AllAt(Word word, uint64_t position) const {
  for (int r : *members_) {
    if (rank_->of(r).header().*word < position) return false;
  }
  return true;
}

void ShmAllreduce::Publish(Word word, int64_t blocks) {
  rank_->own().header().*word = Done(blocks);
  rank_->Ring(*members_);
}

bool ShmAllreduce::CanPack() const {
  return packed_ < blocks_ && rank_->SlotIsFree(SlotOf(packed_));
}

bool ShmAllreduce::CanReduce() const {
  return sliced_ && reduced_ < packed_ && AllAt(&ShmHeader::packed, Done(reduced_ + 1));
}

bool ShmAllreduce::CanTake() const {
  if (!sliced_) return taken_ < packed_ && AllAt(&ShmHeader::packed, Done(taken_ + 1));
  return taken_ < reduced_ && AllAt(&ShmHeader::reduced, Done(taken_ + 1));
}

void ShmAllreduce::Pack() {
  const uint64_t slot = SlotOf(packed_);
  inputs_.Seek(BlockBegin(packed_));
  inputs_.CopyIn(BlockCount(packed_), rank_->own().slot(slot));
  ++packed_;
  rank_->FillForAll(slot, members_, Done(packed_));
  Publish(&ShmHeader::packed, packed_);
}

Status ShmAllreduce::Find(int64_t b) {
  const uint64_t slot = SlotOf(b);
  for (int r = 0; r < n(); ++r) {
    const int place = (*members_)[r];
    HVD_RETURN_IF_ERROR(rank_->CheckTag(place, slot, Done(b + 1)));
    found_[r] = rank_->of(place).slot(slot);
  }
  return Status::Ok();
}

Status ShmAllreduce::Reduce() {
  HVD_RETURN_IF_ERROR(Find(reduced_));
  const int64_t count = BlockCount(reduced_);
  const int64_t begin = SliceBegin(count, me_, n());
  for (int r = 0; r < n(); ++r) contributions_[r] = found_[r] + begin * item_bytes_;
  // In place: nobody else reads this slice of my slot before it is published.
  std::byte* const out = rank_->own().slot(SlotOf(reduced_)) + begin * item_bytes_;
  ReduceInOrder(call_.dtype, call_.reduction, contributions_.data(), n(), out,
                SliceBegin(count, me_ + 1, n()) - begin);
  ++reduced_;
  Publish(&ShmHeader::reduced, reduced_);
  return Status::Ok();
}

Status ShmAllreduce::Take() {
  HVD_RETURN_IF_ERROR(Find(taken_));
  const int64_t count = BlockCount(taken_);
  if (sliced_) {
    for (int r = 0; r < n(); ++r) {
      const int64_t begin = SliceBegin(count, r, n());
      outputs_.Seek(BlockBegin(taken_) + begin);
      outputs_.CopyOut(SliceBegin(count, r + 1, n()) - begin, found_[r] + begin * item_bytes_);
    }
  } else {
    outputs_.Seek(BlockBegin(taken_));
    const size_t out_item = ItemBytes(call_.in_memory());
    outputs_.ForPieces(count, [&](const Segment& s, int64_t offset, int64_t elements, int64_t at) {
      for (int r = 0; r < n(); ++r) contributions_[r] = found_[r] + at * item_bytes_;
      ReduceInOrderTo(call_.in_memory(), call_.dtype, call_.reduction, contributions_.data(), n(),
                      s.out + offset * out_item, elements, store_);
    });
  }
  ++taken_;
  Publish(&ShmHeader::taken, taken_);
  return Status::Ok();
}

}  // namespace hvd
