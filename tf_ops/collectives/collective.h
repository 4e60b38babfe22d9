// Collective: what one kind of collective means.  One row of table.cc each.
//
// To add one: write its file with these functions, add its row to table.cc and its Kind to
// base/types.h, and with it hvd_kind (runtime/c_api.h) and KINDS (python/horovod/common/core.py);
// for TensorFlow a row of the op table in adapters/tf/op_table.cc and of RUNS_IN_ANY_ORDER
// (python/horovod/tensorflow/_compat.py), a Python function, and its gradient in gradients.py.

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

// Which numbers of a rank's request may change from call to call, and must reach all ranks.
enum class Sizes {
  kNone,
  kRows,    // the first dimension of each of its tensors
  kSplits,  // the rows that it has for each member
};

// What a rank knows of a call beside its own signature.
struct Around {
  int me = 0;  // its place among the members of the process set
  int n = 1;   // members
  // SizesOf() of each member, one after another; zeros of one that has joined.
  const std::vector<int64_t>& sizes;
};

struct Collective {
  Kind kind;

  // Whether element i of the output needs element i of the inputs alone, so that tensors may
  // travel together, and large ones in parts.
  bool elementwise;

  Sizes sizes;

  // Whether a group of tensors may be one request.
  bool groups;

  // Not null: all ranks take part under this name, whatever their callers say, nothing is
  // exchanged, and the coordinator gives the answer, Signature::root of the response, which is
  // another each time.
  const char* fixed_name;
  bool answered() const { return fixed_name != nullptr; }

  // What one rank can see by itself, beside what Validate() checks for all.
  Status (*validate)(const Signature& signature, const std::vector<int>& members);

  // What two ranks must agree on, beside kind, dtype and the number of tensors.
  // FailedPrecondition names both.
  Status (*agree)(const Signature& a, int rank_a, const Signature& b, int rank_b);

  // The shape of this rank's output `i`; null: it has none.
  std::vector<int64_t> (*output_shape)(const Signature& signature, size_t i, const Around& around);

  // Adds to `call` which elements of tensor `i` go where; null: the collective has no such.
  void (*divide)(const Signature& signature, size_t i, const Around& around, CollectiveCall* call);

  // Runs the call to its end.  Data thread.
  // REQUIRES: `scratch` holds kScratchBytesPerRank for each rank of the set.
  Status (*run)(Transport& transport, const CollectiveCall& call, Bytes scratch);
};

inline constexpr size_t kScratchBytesPerRank = 4096;

// Changes of process sets share a name, so that ranks that change them in another order hear of
// it.
inline constexpr char kJoinName[] = "<join>";
inline constexpr char kProcessSetsName[] = "<process sets>";

extern const Collective kAllreduce;
extern const Collective kAllgather;
extern const Collective kBroadcast;
extern const Collective kAlltoall;
extern const Collective kReducescatter;
extern const Collective kBarrier;
extern const Collective kJoin;
extern const Collective kAddProcessSet;
extern const Collective kRemoveProcessSet;

// The row of `kind`.  REQUIRES: a known kind.
const Collective* FindCollective(Kind kind);

// All that can be checked before a request leaves its rank: the shape is sane, the rank is in the
// set, and the collective's own rules.
Status Validate(const Signature& signature, const std::vector<int>& members, int rank);

// Whether two ranks' requests of one name may run together.
Status Agree(const Signature& a, int rank_a, const Signature& b, int rank_b);

// What the caller left out: the equal splits of an alltoall.  InvalidArgument: there are none.
// REQUIRES: the process set has `n` members.
Status Complete(Signature* signature, int n);

// The sizes that may change from call to call of one cached request, and so travel beside
// its cache id: the rows of an allgather, the splits of an alltoall, nothing for most.
std::vector<int64_t> SizesOf(const Signature& signature);
Signature WithSizes(const Signature& signature, const std::vector<int64_t>& sizes);
// How many each of `n` members has.
size_t SizeCount(const Signature& signature, int n);

// Whether two requests are the same but for SizesOf().
bool SameButSizes(const Signature& a, const Signature& b);

// Whether the request may travel in parts, each with a part of its elements.
bool CanBeCut(const Signature& signature);

// What the collectives that are answered share: a name, and an int32 that is the answer.
Status ValidateAnswered(const Signature& signature, const std::vector<int>& members);
std::vector<int64_t> AnswerShape(const Signature& signature, size_t i, const Around& around);
Status RunAnswer(Transport& transport, const CollectiveCall& call, Bytes scratch);

// An output as large as the input.
std::vector<int64_t> SameShape(const Signature& signature, size_t i, const Around& around);

// FailedPrecondition when two ranks differ in a shape; in all but the first dimension.
Status AgreeOnShapes(const Signature& a, int rank_a, const Signature& b, int rank_b);
Status AgreeOnRows(const Signature& a, int rank_a, const Signature& b, int rank_b);

// InvalidArgument: the wire dtype is not a narrower float of 16 bits, or the collective cannot
// cast.
Status ValidateWireDtype(const Signature& signature);

// What a reduction and its factors must fulfil, and what two ranks must agree on of them.
Status ValidateReduction(const Signature& signature, const std::vector<int>& members);
Status AgreeOnReduction(const Signature& a, int rank_a, const Signature& b, int rank_b);

// InvalidArgument: a tensor is a scalar, but "`what`" needs rows.
Status ValidateRows(const Signature& signature, const std::string& what);

// FailedPrecondition: "allreduce 'x': rank 1 sent shape [3], rank 0 sent [2]; `rule`".
Status Differ(const Signature& a, const std::string& what, int rank_a, const std::string& value_a,
              int rank_b, const std::string& value_b, const std::string& rule);

}  // namespace hvd

#endif  // TF_OPS_COLLECTIVES_COLLECTIVE_H_
