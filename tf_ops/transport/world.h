// World: who takes part in one generation, as the rendezvous told every rank.

#ifndef TF_OPS_TRANSPORT_WORLD_H_
#define TF_OPS_TRANSPORT_WORLD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tf_ops/base/strings.h"

namespace hvd {

struct World {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // among the ranks of this host
  int local_size = 1;
  int cross_rank = 0;  // of this host, among the hosts that have this local rank
  int cross_size = 1;
  bool homogeneous = true;                          // every host has as many ranks
  uint64_t generation = 1;                          // one per init() of the job
  std::string nonce;                                // fresh and random for each generation
  std::string secret;                               // the job's; proves who belongs to it
  std::vector<std::string> hosts;                   // host name of each rank
  std::vector<std::vector<std::string>> endpoints;  // of each rank: net/endpoint.h
  // At the start: id -> members; [0] is all ranks.  The ids of older generations are not used
  // again, and have no members here.
  std::vector<std::vector<int>> process_sets;
  bool dynamic_process_sets = false;  // they may come and go

  // "rank 3 (host node7)"; for messages.
  std::string RankText(int r) const {
    const bool known = r >= 0 && r < static_cast<int>(hosts.size()) && !hosts[r].empty();
    return known ? StrCat("rank ", r, " (host ", hosts[r], ")") : StrCat("rank ", r);
  }
};

}  // namespace hvd

#endif  // TF_OPS_TRANSPORT_WORLD_H_
