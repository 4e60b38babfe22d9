// Collective: what one kind of collective means.  One row of table.cc each.
//
// To add one: write its file with these functions, add its row to table.cc, a row to the
// op table in adapters/tf/op_table.cc and a Python function.

#ifndef TF_OPS_COLLECTIVES_COLLECTIVE_H_
#define TF_OPS_COLLECTIVES_COLLECTIVE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tf_ops/base/bytes.h"
#include "tf_ops/base/status.h"
#include "tf_ops/collectives/signature.h"
#include "tf_ops/transport/collective_call.h"
#include "tf_ops/transport/transport.h"

namespace hvd {

struct Collective {
  Kind kind;

  // Whether element i of the output needs element i of the inputs alone, so that tensors may
  // travel together, and large ones in parts.
  bool elementwise;

  // Whether the first dimension may differ between ranks, so that all must hear of all.
  bool uneven_rows;

  // What one rank can see by itself, beside what Validate() checks for all.
  Status (*validate)(const Signature& signature, const std::vector<int>& members);

  // What two ranks must agree on, beside kind and dtype.  FailedPrecondition names both.
  Status (*agree)(const Signature& a, int rank_a, const Signature& b, int rank_b);

  // The shape of this rank's output; null: it has none.  `rows`: the first dimension on each
  // member.
  std::vector<int64_t> (*output_shape)(const Signature& signature,
                                       const std::vector<int64_t>& rows);

  // Runs the call to its end.  Data thread.
  // REQUIRES: `scratch` holds kScratchBytesPerRank for each rank of the set.
  Status (*run)(Transport& transport, const CollectiveCall& call, Bytes scratch);
};

inline constexpr size_t kScratchBytesPerRank = 4096;

extern const Collective kAllreduce;
extern const Collective kAllgather;
extern const Collective kBroadcast;
extern const Collective kBarrier;

// The row of `kind`, or null when it is not built yet.
const Collective* FindCollective(Kind kind);

// All that can be checked before a request leaves its rank: the collective exists, the
// shape is sane, the rank is in the set, and the collective's own rules.
Status Validate(const Signature& signature, const std::vector<int>& members, int rank);

// Whether two ranks' requests of one name may run together.
Status Agree(const Signature& a, int rank_a, const Signature& b, int rank_b);

// The sizes that may change from call to call of one cached request, and so travel beside
// its cache id: the rows of an allgather, nothing for most.
std::vector<int64_t> SizesOf(const Signature& signature);
Signature WithSizes(const Signature& signature, const std::vector<int64_t>& sizes);

// Whether two requests are the same but for SizesOf().
bool SameButSizes(const Signature& a, const Signature& b);

// An output as large as the input.
std::vector<int64_t> SameShape(const Signature& signature, const std::vector<int64_t>& rows);

// FailedPrecondition: "allreduce 'x': rank 1 sent shape [3], rank 0 sent [2]; `rule`".
Status Differ(const Signature& a, const std::string& what, int rank_a, const std::string& value_a,
              int rank_b, const std::string& value_b, const std::string& rule);

}  // namespace hvd

#endif  // TF_OPS_COLLECTIVES_COLLECTIVE_H_
