// ShmRank: this rank among the segments of its host: waiting, waking, and which of its own
// slots may be written.
//
// Waking: a rank that finds nothing to do says in its segment that it sleeps, looks once
// more, and waits on its own bell (a futex).  Who publishes a word looks afterwards whether a
// rank that may wait for it sleeps, and rings.  Each stores before it loads, all in
// one order (seq_cst), so at least one of the two sees the other.
//
// Threads: the data thread, but for Abort() and moved().

#ifndef TF_OPS_TRANSPORT_SHM_SHM_RANK_H_
#define TF_OPS_TRANSPORT_SHM_SHM_RANK_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tf_ops/base/deadline.h"
#include "tf_ops/base/spinner.h"
#include "tf_ops/base/status.h"
#include "tf_ops/transport/net/stop.h"
#include "tf_ops/transport/shm/segment.h"

namespace hvd {

// Ranks of a host by their place in it: 0 is the leader.
using HostRanks = std::vector<int>;

class ShmRank {
 public:
  // `segments`: by place in the host; `names`: "rank 3 (host a)", for messages; `spin`: how long
  // a wait looks before it sleeps.
  ShmRank(std::vector<std::shared_ptr<ShmSegment>> segments, std::vector<std::string> names, int me,
          uint64_t generation, Clock::duration spin, const Stop* stop);

  int me() const { return me_; }
  const ShmLayout& layout() const { return own().layout(); }
  ShmSegment& own() const { return *segments_[me_]; }
  ShmSegment& of(int r) const { return *segments_[r]; }
  const std::string& name(int r) const { return names_[r]; }

  // Waits until `ready()`.  The Stop's reason, or DeadlineExceeded with `late()`: nothing else
  // ends it, since a peer that does nothing may only be stopped for a while.
  template <typename Ready, typename Late>
  Status Wait(Deadline deadline, Ready ready, Late late) {
    for (int i = 0; i < kLooks; ++i) {
      if (ready()) return Status::Ok();
      if (aborted_) return stop_->reason();
      Relax();
    }
    if (spinner_.Until([&] { return aborted_ || ready(); })) return aborted();
    ShmHeader& header = own().header();
    Status status;
    for (;;) {
      const uint32_t bell = header.bell;
      header.sleeping = 1;
      if (ready()) break;
      if (aborted_) {
        status = stop_->reason();
        break;
      }
      if (deadline.passed()) {
        status = Status::DeadlineExceeded(late());
        break;
      }
      SleepOn(&header.bell, bell, deadline);
    }
    header.sleeping = 0;
    return status;
  }

  // Wakes those of `ranks` that sleep, after a word that they may wait for was stored.
  void Ring(const HostRanks& ranks);
  void Ring(int r);

  // How often this rank has rung: Transport::moved().  Any thread.
  uint64_t moved() const { return moved_.load(std::memory_order_relaxed); }

  // The reason of the Stop, once it is set.
  Status aborted() const { return aborted_ ? stop_->reason() : Status::Ok(); }
  // The Stop is set: ends the wait.  Any thread.
  void Abort();

  // Whether all who were to read the content of my `slot` have done so.
  bool SlotIsFree(uint64_t slot) const;
  // My `slot` holds new content, tagged `position`: `readers` have read it once their `taken` is
  // at `position`; or `to` once it has received `chunks` chunks of mine.
  // REQUIRES: SlotIsFree(slot).
  void FillForAll(uint64_t slot, std::shared_ptr<const HostRanks> readers, uint64_t position);
  void FillFor(uint64_t slot, int to, uint64_t chunks);
  // Internal: the slot of `r` holds something else than `position`.
  Status CheckTag(int r, uint64_t slot, uint64_t position) const;

  // The next call of this rank is `sequence`; Internal when that is not later than the last.
  Status BeginCall(uint64_t sequence);

 private:
  // Looks before it gives the core away: a few microseconds, about what that costs.
  static constexpr int kLooks = 200;

  struct Content {
    std::shared_ptr<const HostRanks> readers;
    int to = -1;         // of a message; else -1
    uint64_t until = 0;  // position, or chunks
  };

  static void Relax();
  static void SleepOn(std::atomic<uint32_t>* bell, uint32_t value, Deadline deadline);

  const std::vector<std::shared_ptr<ShmSegment>> segments_;
  const std::vector<std::string> names_;
  const int me_;
  const uint64_t generation_;
  const Stop* const stop_;
  std::atomic<bool> aborted_{false};
  std::atomic<uint64_t> moved_{0};
  Spinner spinner_;
  std::vector<Content> contents_;  // of my slots
  bool began_ = false;
  uint64_t sequence_ = 0;  // of the last call, if began_
};

}  // namespace hvd

#endif  // TF_OPS_TRANSPORT_SHM_SHM_RANK_H_
