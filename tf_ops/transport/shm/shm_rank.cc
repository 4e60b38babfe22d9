#include "tf_ops/transport/shm/shm_rank.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>
#include <utility>

#include "tf_ops/base/strings.h"
#include "tf_ops/transport/shm/position.h"

namespace hvd {
namespace {

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));

long Futex(std::atomic<uint32_t>* word, int operation, uint32_t value, const timespec* time) {
  return syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), operation, value, time, nullptr,
                 FUTEX_BITSET_MATCH_ANY);
}

void Toll(std::atomic<uint32_t>* bell) {
  ++*bell;
  Futex(bell, FUTEX_WAKE, INT_MAX, nullptr);
}

}  // namespace

ShmRank::ShmRank(std::vector<std::shared_ptr<ShmSegment>> segments, std::vector<std::string> names,
                 int me, uint64_t generation, Clock::duration spin, const Stop* stop)
    : segments_(std::move(segments)),
      names_(std::move(names)),
      me_(me),
      generation_(generation),
      stop_(stop),
      spinner_(spin),
      contents_(layout().slots) {}

void ShmRank::Relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void ShmRank::SleepOn(std::atomic<uint32_t>* bell, uint32_t value, Deadline deadline) {
  timespec until = {};
  if (!deadline.never()) {
    // steady_clock is CLOCK_MONOTONIC, by which FUTEX_WAIT_BITSET measures.
    const auto at = deadline.at().time_since_epoch();
    const auto s = std::chrono::duration_cast<std::chrono::seconds>(at);
    until.tv_sec = s.count();
    until.tv_nsec = std::chrono::duration_cast<std::chrono::nanoseconds>(at - s).count();
  }
  Futex(bell, FUTEX_WAIT_BITSET, value, deadline.never() ? nullptr : &until);
}

void ShmRank::Ring(int r) {
  moved_.fetch_add(1, std::memory_order_relaxed);
  ShmHeader& header = of(r).header();
  if (header.sleeping != 0) Toll(&header.bell);
}

void ShmRank::Ring(const HostRanks& ranks) {
  for (int r : ranks) {
    if (r != me_) Ring(r);
  }
}

void ShmRank::Abort() {
  aborted_ = true;
  Toll(&own().header().bell);
}

bool ShmRank::SlotIsFree(uint64_t slot) const {
  const Content& content = contents_[slot];
  if (content.to >= 0) return of(content.to).received(me_) >= content.until;
  if (content.readers == nullptr) return true;
  for (int r : *content.readers) {
    if (of(r).header().taken < content.until) return false;
  }
  return true;
}

void ShmRank::FillForAll(uint64_t slot, std::shared_ptr<const HostRanks> readers,
                         uint64_t position) {
  own().tag(slot) = {generation_, position};
  contents_[slot] = {std::move(readers), -1, position};
}

void ShmRank::FillFor(uint64_t slot, int to, uint64_t chunks) {
  own().tag(slot) = {generation_, MessageTag(to, chunks)};
  contents_[slot] = {nullptr, to, chunks};
}

Status ShmRank::CheckTag(int r, uint64_t slot, uint64_t position) const {
  const SlotTag& tag = of(r).tag(slot);
  if (tag.generation == generation_ && tag.position == position) return Status::Ok();
  return Status::Internal(StrCat("out of step with ", name(r), ": its slot ", slot,
                                 " holds position ", tag.position, " of generation ",
                                 tag.generation, " where position ", position, " of generation ",
                                 generation_, " is due"));
}

Status ShmRank::BeginCall(uint64_t sequence) {
  if ((began_ && sequence <= sequence_) || sequence > kMostSequence) {
    return Status::Internal(
        StrCat("out of step: call ", sequence, " comes after call ", sequence_));
  }
  began_ = true;
  sequence_ = sequence;
  return Status::Ok();
}

}  // namespace hvd
