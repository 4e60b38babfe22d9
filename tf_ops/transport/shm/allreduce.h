// The allreduce of shared memory: packing is the send.
//
// The array is cut into blocks of one slot.  For each block a rank
//
//   packs    its input into one of its slots,
//   reduces  its slice of the block, from the slots of all ranks into its own slot,
//   takes    all slices from the slots to its output,
//
// and says after each step how far it is.  Where the bytes are few, or the ranks two, the
// slice is the whole block and goes straight to the output: there is no second step.
//
// Blocks are pipelined: a step waits for the peers' step before it, of the same block only;
// who waits packs ahead, as far as its slots are free.  The last step that is possible comes
// first, while its bytes are in the cache.
//
// Both ways add in rank order (device/reduce.h) and give the bits of the algorithms on SendRecv.
//
// Threads: the data thread.

#ifndef TF_OPS_TRANSPORT_SHM_ALLREDUCE_H_
#define TF_OPS_TRANSPORT_SHM_ALLREDUCE_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tf_ops/base/status.h"
#include "tf_ops/transport/collective_call.h"
#include "tf_ops/transport/segment_view.h"
#include "tf_ops/transport/shm/shm_rank.h"

namespace hvd {

class ShmAllreduce {
 public:
  // `members`: places in the host, in the order of the set; `me`: this rank's place in the set.
  // All arguments outlive this object.
  ShmAllreduce(ShmRank* rank, const std::shared_ptr<const HostRanks>& members, int me,
               const CollectiveCall& call);

  Status Run();

 private:
  using Word = std::atomic<uint64_t> ShmHeader::*;

  int n() const { return static_cast<int>(members_->size()); }
  int64_t BlockBegin(int64_t b) const { return b * block_; }
  int64_t BlockCount(int64_t b) const { return std::min(block_, total_ - b * block_); }
  uint64_t SlotOf(int64_t b) const;
  uint64_t Done(int64_t blocks) const;
  bool AllAt(Word word, uint64_t position) const;
  void Publish(Word word, int64_t blocks);

  bool CanPack() const;
  bool CanReduce() const;
  bool CanTake() const;
  void Pack();
  Status Reduce();
  Status Take();
  // Points contributions_ at block `b` in the slots of all ranks.
  Status Find(int64_t b);

  ShmRank* const rank_;
  const std::shared_ptr<const HostRanks> members_;
  const int me_;
  const CollectiveCall& call_;
  const size_t item_bytes_;
  const int64_t total_;
  const int64_t block_;  // elements
  const int64_t blocks_;
  const bool sliced_;  // with the second step
  const Store store_;
  SegmentView inputs_;
  SegmentView outputs_;
  std::vector<const std::byte*> found_;     // block in each rank's slot
  std::vector<const void*> contributions_;  // the part of it to reduce
  int64_t packed_ = 0;                      // blocks
  int64_t reduced_ = 0;
  int64_t taken_ = 0;
};

}  // namespace hvd

#endif  // TF_OPS_TRANSPORT_SHM_ALLREDUCE_H_
