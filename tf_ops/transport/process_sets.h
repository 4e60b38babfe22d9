// ProcessSets: the groups of ranks that run collectives among themselves, by number.
//
// Sets come and go at positions of the ordered stream, so all ranks number them alike.  No
// number is used again, and a removed set's members stay known to what is still about it.
//
// Threads: Add() and Remove() are the control thread's; the rest any.

#ifndef TF_OPS_TRANSPORT_PROCESS_SETS_H_
#define TF_OPS_TRANSPORT_PROCESS_SETS_H_

#include <deque>
#include <mutex>
#include <vector>

#include "tf_ops/transport/world.h"

namespace hvd {

class ProcessSets {
 public:
  explicit ProcessSets(const World& world);

  // Numbers given so far.
  int size() const;
  // Whether there is such a set now.
  bool has(int id) const;
  // Whether there is or was one in this generation.
  bool knew(int id) const;
  // Ascending; for the life of this object.  REQUIRES: it knew the set.
  const std::vector<int>& members(int id) const;
  // The set that holds these ranks, ascending, and no others; -1: none does.
  int Find(const std::vector<int>& members) const;

  // Returns the number of the new set.
  int Add(std::vector<int> members);
  // REQUIRES: there is such a set.
  void Remove(int id);

 private:
  struct Set {
    std::vector<int> members;
    bool there = true;
  };

  // REQUIRES: mutex_ is held.
  const Set* Get(int id) const;

  mutable std::mutex mutex_;
  std::deque<Set> sets_;  // its elements stay where they are; guarded by mutex_
};

}  // namespace hvd

#endif  // TF_OPS_TRANSPORT_PROCESS_SETS_H_
