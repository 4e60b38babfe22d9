// Negotiator: the coordinator's mind.  It hears which tensors are ready on which ranks
// and makes the one ordered stream of responses.
//
// Pure: no sockets, no threads, no clock (times are arguments), so a test can drive it
// through any history.
//
// The steady state is short: a cached tensor gathers bits, one per port, and is decided when
// all have come.  Everything else, and whatever disturbs that, goes through entries.  A name
// on a process set has one entry at a time that collects its ranks.  An entry fails when
// ranks disagree, or one refuses, withdraws or leaves: ranks that have come are told at once,
// ranks that come later are told when they come, and the entry is over when all have come.
// A rank that comes again meanwhile opens the next entry of that name.
//
// A rank that withdraws a gradient (Signature::gradient) fails nobody: it is as if it had not
// come.  It may come again; or its input has ended, and it leaves.
//
// A rank that has joined is not waited for on set 0 until all have: an entry that lacks only
// such ranks is decided without them.  On other sets it fails.
//
// A process set whose removal is decided takes no more.  What was decided on it is flushed first;
// what waits on it ends on its rank, where that comes to the removal in the stream.
//
// Threads: the control thread of rank 0.

#ifndef TF_OPS_COORDINATOR_NEGOTIATOR_H_
#define TF_OPS_COORDINATOR_NEGOTIATOR_H_

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "tf_ops/base/config.h"
#include "tf_ops/base/deadline.h"
#include "tf_ops/coordinator/cache_keeper.h"
#include "tf_ops/coordinator/message.h"
#include "tf_ops/coordinator/ports.h"
#include "tf_ops/transport/world.h"

namespace hvd {

// HOROVOD_JOIN_AVERAGE, which counts on rank 0.
inline constexpr char kJoinAverageOfAll[] = "size";
inline constexpr char kJoinAverageOfPresent[] = "contributing";

class Negotiator {
 public:
  using Time = Clock::time_point;

  // All outlive this object.
  Negotiator(const World& world, const ProcessSets& sets, const Config& config, const Ports& ports);

  // The process sets have one more.
  void AddSet();

  // `peer`, this rank or a child, reports.
  void Hear(int peer, const Report& report, Time now);

  // `rank` takes part no more, since `because` (itself, or the one through which it is heard)
  // ended in order.  What needs it fails, now and later.
  void Leave(int rank, int because);

  // True when Flush() would give something.
  bool has_output() const { return !errors_.empty() || !decided_.empty(); }
  bool has_errors() const { return !errors_.empty(); }

  // What is decided, as one round: errors, then what is ready, fused into buckets.  Of a tensor
  // above the fusion threshold a round takes one part, so that it delays no other for long.
  std::vector<Response> Flush();
  // All that is decided.
  std::vector<Response> FlushAll();

  // Looks for tensors that wait too long: adds lines to `warnings`, fails names that can
  // never match, and returns not ok when the job must be aborted (stall shutdown).
  Status Inspect(Time now, std::vector<std::string>* warnings);

  // True while something waits for a rank; then Inspect() must be called now and then.
  bool waiting() const { return !entries_.empty() || !gathering_.empty(); }

 private:
  using Key = std::pair<int, std::string>;  // process set, name
  using SignaturePtr = std::shared_ptr<const Signature>;

  // Why an entry will never run.  A rank that left is told by kind of request (LeftStatus).
  struct Failure {
    Status status;
    int left_rank = -1;
  };

  struct Entry {
    std::vector<bool> came;  // by member; set by SetCame()
    size_t num_came = 0;
    std::vector<SignaturePtr> waiting;  // by member: came ready, not told yet; else null
    std::optional<Failure> failed;
    Time since;   // its first rank came
    Time warned;  // of the last stall warning

    void SetCame(size_t member, bool value) {
      num_came += value - came[member];
      came[member] = value;
    }
  };

  struct Decided {
    SignaturePtr signature;
    CacheId id = 0;  // what is cached of its key; 0: nothing
    std::vector<int64_t> sizes;
    std::vector<int> absent;  // ranks that have joined
    int64_t part_begin = 0;   // elements already flushed
  };

  static Key KeyOf(const Signature& s) { return {s.process_set, s.name}; }
  const std::vector<int>& members(int set) const { return sets_.members(set); }
  // Of `rank` in `set`; nullopt: it is not in it, or nothing runs on it any more.
  std::optional<size_t> MemberOf(int set, int rank) const;

  void HearReady(int port, const CachedReady& ready, Time now);
  void HearAnnouncement(int rank, const Announcement& announcement, Time now);
  void Come(int rank, const SignaturePtr& signature, Time now);
  void Refuse(int rank, const Announcement& announcement, Time now);
  void Withdraw(int rank, const Announcement& announcement);
  // The rank has heard, by ending itself, of the failure that it was to be told when it came.
  void Drop(int rank, const Signature& signature);
  // Turns the bits gathered for a key, or for all, into entries, which know each rank.
  void Expand(const Key& key);
  void ExpandAll();
  // The entry that `member` is to come to; made where there is none.
  Entry& EntryFor(const Key& key, size_t member, Time now);
  // All have come and none refused: into the stream, or fail where they disagree.
  void Decide(const Key& key, Entry* entry);
  // `rank` has come to the entry of the join, `join`: what lacked only it is decided.
  void HearJoin(const Key& join, int rank);
  void TakeBackJoin(int rank);
  // Into the stream, with the answer.
  void DecideAnswer(const SignaturePtr& signature);
  // Nothing but what is decided will run on `set`: each rank ends what waits.
  void CloseSet(int set);
  // Whether it removes a set on which something has not been flushed.
  bool MustWait(const Decided& decided, const std::vector<Decided>& unflushed) const;
  // Why what is decided cannot run without `absent`; ok: it can.
  Status CheckAbsent(const Signature& s, const std::vector<int>& absent) const;
  // Why a change of the process sets cannot be made; ok: it can, or `s` is none.
  Status CheckChange(const Signature& s) const;
  // Looks anew which sets lack a rank.
  void FindLacks();
  // Tells all who wait in `entry`, and will tell who comes later.
  void Fail(const Key& key, Entry* entry, Failure failure);
  // Tells the waiting `member`, and only it, why its entry failed.
  void Tell(const Key& key, Entry* entry, size_t member);
  // Whether nobody is waited for: who has neither left nor joined has come.
  bool AllCame(const Key& key, const Entry& entry) const;
  void DropFinished(const Key& key);
  std::vector<int> MissingRanks(const Key& key, const Entry& entry) const;
  Status LeftStatus(int rank, const Signature& s) const;
  // Buckets of indices into decided_.
  std::vector<std::vector<size_t>> PlanDecided() const;
  // The response that runs these, and before it what its cache entries evict.
  void Emit(std::vector<Decided>* bucket, std::vector<Response>* out);
  // Decided, and so not to be evicted before it has been flushed.
  void Push(Decided decided);
  void Place(Decided* decided, CacheId id);

  // stall.cc
  static std::string TitleOf(const Key& key, const Entry& entry);
  // From when on patience with an entry counts: whoever joins waits as long as others work.
  Time WaitsSince(const Key& key, const Entry& entry, Time since) const;
  void WarnOfStalls(Time now, std::vector<std::string>* warnings);
  void FailMismatches(Time now);
  std::string LastOf(int rank) const;

  const World& world_;
  const ProcessSets& sets_;
  const Config& config_;
  const Ports& ports_;
  CacheKeeper keeper_;
  std::map<CacheId, Gathering> gathering_;
  std::map<Key, std::deque<Entry>> entries_;
  std::vector<Decided> decided_;             // in order; fused by Flush()
  std::unordered_set<CacheId> decided_ids_;  // of decided_
  std::vector<Response> errors_;
  std::vector<int> left_because_;  // by rank: -1 while it is here
  std::vector<bool> joined_;       // by rank; until all have
  int last_joined_ = -1;
  std::vector<size_t> lacks_;  // by set: its ranks that have left or joined
  std::vector<bool> closed_;   // by set: its removal is decided
  // What came last: of a rank by an announcement, of a set by a decision.  For messages.
  struct Last {
    std::string title;
    Time at{};
  };
  std::vector<Last> last_of_rank_;
  std::vector<std::pair<SignaturePtr, Time>> last_of_set_;
  std::vector<Time> last_heard_;  // by set: of any report about it
  uint64_t next_sequence_ = 1;
};

}  // namespace hvd

#endif  // TF_OPS_COORDINATOR_NEGOTIATOR_H_
