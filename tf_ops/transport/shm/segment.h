// ShmSegment: the memory in which one rank shows its data to the other ranks of its host.
//
// It is a memfd, passed between processes as a descriptor, so it has no name that could
// stay behind, and its size is not bounded by /dev/shm.  Its space is allocated when it is
// made, and it is sealed against changes of its size: no access to it can fail.
//
//   header | one Mailbox and one Counter per rank of the host | slot tags | slots
//
// Every word has one writer, the segment's owner, except `bell`.  Positions only grow.
// Slots are never reset: each has a tag that says which content it holds.
//
// Threads: words that others poll are atomic; all else is written before such a word tells
// so, and not again before another one tells that it has been read.

#ifndef TF_OPS_TRANSPORT_SHM_SEGMENT_H_
#define TF_OPS_TRANSPORT_SHM_SEGMENT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "tf_ops/base/fd.h"

namespace hvd {

inline constexpr size_t kCacheLine = 64;
static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(std::atomic<uint32_t>::is_always_lock_free);

// What all segments of a host have in common.
struct ShmLayout {
  static constexpr size_t kMostSlotBytes = 256 << 10;

  uint64_t ranks = 0;       // of the host
  uint64_t slots = 0;       // at least 2
  uint64_t slot_bytes = 0;  // a multiple of kCacheLine

  // REQUIRES: staging_bytes >= 4096: the memory for all slots of a rank.
  static ShmLayout Of(int ranks, size_t staging_bytes);

  size_t total_bytes() const;
  bool operator==(const ShmLayout& other) const {
    return ranks == other.ranks && slots == other.slots && slot_bytes == other.slot_bytes;
  }
};

struct alignas(kCacheLine) ShmHeader {
  uint64_t magic;
  uint64_t generation;
  int64_t rank;
  ShmLayout layout;

  // A futex: others add one and wake the owner, if it sleeps.
  alignas(kCacheLine) std::atomic<uint32_t> bell;
  std::atomic<uint32_t> sleeping;

  // How far the owner is in its collectives (position.h).
  alignas(kCacheLine) std::atomic<uint64_t> packed;   // its input lies in slots
  alignas(kCacheLine) std::atomic<uint64_t> reduced;  // its slice of the result lies in its slot
  alignas(kCacheLine) std::atomic<uint64_t> taken;    // it has read all it needs of all slots
};

// The messages of the owner to one rank.
struct alignas(kCacheLine) Mailbox {
  std::atomic<uint64_t> posted;  // chunks, in all
  // The message that the chunks from posted on belong to.
  uint64_t number;
  uint64_t bytes;
  uint64_t first_slot;
};

struct alignas(kCacheLine) Counter {
  std::atomic<uint64_t> value;
};

struct alignas(kCacheLine) SlotTag {
  uint64_t generation;
  uint64_t position;
};

// What makes a descriptor of `bytes` of memory that can be sealed; -1 and errno if refused.
using MakeMemory = std::function<int(size_t bytes)>;
int MakeMemfd(size_t bytes);

class ShmSegment {
 public:
  // Makes the segment of `rank`.  Empty, or why it cannot be.
  static std::string Make(const ShmLayout& layout, uint64_t generation, int rank,
                          const MakeMemory& make_memory, FdTable* table, Fd* fd,
                          std::unique_ptr<ShmSegment>* segment);

  // Maps the segment of `rank`, which another process made.  Empty, or why it cannot be.
  static std::string Map(const ShmLayout& layout, uint64_t generation, int rank, const Fd& fd,
                         std::unique_ptr<ShmSegment>* segment);

  ~ShmSegment();
  ShmSegment(const ShmSegment&) = delete;
  ShmSegment& operator=(const ShmSegment&) = delete;

  const ShmLayout& layout() const { return layout_; }
  ShmHeader& header() const { return *reinterpret_cast<ShmHeader*>(base_); }
  Mailbox& mailbox(int to) const;
  // Chunks that the owner has received from `from`, in all.
  std::atomic<uint64_t>& received(int from) const;
  SlotTag& tag(uint64_t slot) const;
  std::byte* slot(uint64_t slot) const;

 private:
  ShmSegment(const ShmLayout& layout, std::byte* base) : layout_(layout), base_(base) {}
  static std::string MapMemory(const ShmLayout& layout, const Fd& fd,
                               std::unique_ptr<ShmSegment>* segment);

  // The process's own copy: what lies in the memory is not believed twice.
  const ShmLayout layout_;
  std::byte* const base_;
};

}  // namespace hvd

#endif  // TF_OPS_TRANSPORT_SHM_SEGMENT_H_
