// Negotiator: the coordinator's mind.  It hears which tensors are ready on which ranks
// and makes the one ordered stream of responses.
//
// Pure: no sockets, no threads, no clock (times are arguments), so a test can drive it
// through any history.
//
// A name on a process set has one entry at a time that collects its ranks.  An entry fails
// when ranks disagree, or one refuses, withdraws or leaves: ranks that have come are told
// at once, ranks that come later are told when they come, and the entry is over when all
// have come.  A rank that comes again meanwhile opens the next entry of that name.
//
// Threads: the control thread of rank 0.

#ifndef TF_OPS_COORDINATOR_NEGOTIATOR_H_
#define TF_OPS_COORDINATOR_NEGOTIATOR_H_

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tf_ops/base/config.h"
#include "tf_ops/base/deadline.h"
#include "tf_ops/coordinator/message.h"
#include "tf_ops/transport/world.h"

namespace hvd {

class Negotiator {
 public:
  using Time = Clock::time_point;

  struct Outgoing {
    Response response;
    std::vector<int> recipients;  // ranks, ascending
  };

  // Both outlive this object.
  Negotiator(const World& world, const Config& config);

  // `rank` says something about a tensor.
  void Hear(int rank, const Announcement& announcement, Time now);

  // `rank` ended in order.  What needs it fails, now and later.
  void Leave(int rank);

  // True when Flush() would give something.
  bool has_output() const { return !errors_.empty() || !ready_.empty(); }
  bool has_errors() const { return !errors_.empty(); }

  // Takes all that is decided: errors, then what is ready, fused into buckets.
  std::vector<Outgoing> Flush();

  // Looks for tensors that wait too long: adds lines to `warnings`, fails names that can
  // never match, and returns not ok when the job must be aborted (stall shutdown).
  Status Inspect(Time now, std::vector<std::string>* warnings);

  // True while some tensor waits for a rank; then Inspect() must be called now and then.
  bool waiting() const { return !entries_.empty(); }

 private:
  using Key = std::pair<int, std::string>;  // process set, name

  // Why an entry will never run.  A rank that left is told by kind of request (LeftStatus).
  struct Failure {
    Status status;
    int left_rank = -1;
  };

  struct Entry {
    std::vector<bool> came;                         // by member
    std::vector<std::optional<Signature>> waiting;  // by member: came ready, not told yet
    std::optional<Failure> failed;
    Time since;   // its first rank came
    Time warned;  // of the last stall warning
  };

  const std::vector<int>& members(int set) const { return world_.process_sets[set]; }
  // The entry that `member` is to come to; made where there is none.
  Entry& EntryFor(const Key& key, size_t member, Time now);
  // All have come and none refused: into the stream, or fail where they disagree.
  void Decide(const Key& key, Entry* entry);
  // Tells all who wait in `entry`, and will tell who comes later.
  void Fail(const Key& key, Entry* entry, Failure failure);
  // Tells the waiting `member`, and only it, why its entry failed.
  void Tell(const Key& key, Entry* entry, size_t member);
  bool AllCame(const Key& key, const Entry& entry) const;
  void DropFinished(const Key& key);
  std::vector<int> MissingRanks(const Key& key, const Entry& entry) const;
  Status LeftStatus(int rank, const Signature& s) const;
  void WarnOfStalls(Time now, std::vector<std::string>* warnings);
  void FailMismatches(Time now);

  const World& world_;
  const Config& config_;
  std::map<Key, std::deque<Entry>> entries_;
  std::vector<Response> ready_;  // one tensor each, in order; fused by Flush()
  std::vector<Outgoing> errors_;
  std::vector<bool> left_;         // by rank
  std::vector<std::string> last_;  // by rank: title of what it announced last
  Time last_heard_{};              // of any announcement
  uint64_t next_sequence_ = 1;
};

}  // namespace hvd

#endif  // TF_OPS_COORDINATOR_NEGOTIATOR_H_
