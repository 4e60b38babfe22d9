// Relay: what a rank does for those below it in the tree of ranks.
//
// Upward it gathers bits: a cached tensor is reported once, when it is ready on all ranks of
// the set here and below, so that the parent hears one message whatever their number.  What
// stays incomplete goes up rank by rank after kMostHeld, so that rank 0 can say who is
// missing.  All else passes through in order.  Downward it says whom a response is for.
//
// Pure: no sockets, no threads, no clock.  Threads: the control thread.

#ifndef TF_OPS_COORDINATOR_RELAY_H_
#define TF_OPS_COORDINATOR_RELAY_H_

#include <map>
#include <optional>
#include <vector>

#include "tf_ops/coordinator/cache.h"
#include "tf_ops/coordinator/message.h"
#include "tf_ops/coordinator/ports.h"

namespace hvd {

class Relay {
 public:
  using Time = Clock::time_point;
  static constexpr std::chrono::milliseconds kMostHeld{100};

  // All outlive this object.  `cache` follows the whole stream that passes here.
  Relay(const World& world, const ProcessSets& sets, const Ports& ports, const Cache& cache)
      : world_(world),
        sets_(sets),
        ports_(ports),
        cache_(cache),
        lacks_(sets.size(), false),
        left_(world.size, false),
        joined_(world.size, false) {}

  // `peer`, this rank or a child, reports.
  void Hear(int peer, std::vector<Report> reports, Time now);

  // What goes up now, in order.
  std::vector<Report> Take(Time now);
  // When Take() has something that it has not now; nullopt: only after the next Hear().
  std::optional<Time> next_time() const;

  // `rank`, here or below, has said goodbye: what lacks it is held no more, nor what lacks one
  // that has joined.
  void Leave(int rank);

  // A response of the stream, once the cache and the process sets have followed it.
  void Pass(const Response& response);

  // Whether a response is for a rank behind `port`.
  bool IsFor(const Response& response, int port) const;

 private:
  struct Entry {
    Gathering gathering;
    bool held = true;  // false: it went up rank by rank, and what still comes follows at once
  };

  void HearReady(int port, const CachedReady& ready, Time now);
  // Lets what is held of `id` go up rank by rank, and the rest too when it comes.
  void Release(CacheId id);
  void UpByRank(CacheId id, const Gathering& gathering);
  void Up(Report::What what, int rank, CachedReady ready);
  // Looks anew which sets lack a rank, and lets go what is held of them.
  void FindLacks();

  const World& world_;
  const ProcessSets& sets_;
  const Ports& ports_;
  const Cache& cache_;
  std::map<CacheId, Entry> entries_;
  std::vector<bool> lacks_;   // by set: one of its ranks here or below has left or joined
  std::vector<bool> left_;    // by rank
  std::vector<bool> joined_;  // by rank; until all have
  std::vector<Report> up_;
};

}  // namespace hvd

#endif  // TF_OPS_COORDINATOR_RELAY_H_
