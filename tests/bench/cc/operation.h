// One collective over some tensors, all in flight at once, through the C API: repeated, timed and
// checked.
//
// The inputs are small whole numbers that every element type of the benchmark holds exactly, so a
// right result is right to the bit.  Threads: one caller; `done` runs on the core's.

#ifndef TESTS_BENCH_CC_OPERATION_H_
#define TESTS_BENCH_CC_OPERATION_H_

#include <semaphore.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "tf_ops/runtime/c_api.h"

namespace hvd_bench {

// Beyond this many ranks a sum would not be exact in bfloat16.
inline constexpr int kMostRanks = 13;

struct OperationSpec {
  // Reductions are sums, a broadcast is from rank 0.  An alltoall sends the r-th part of the
  // elements to rank r, a reducescatter leaves it there; where they cannot be divided evenly, the
  // first ranks have one more.
  hvd_kind kind = HVD_ALLREDUCE;
  hvd_dtype dtype = HVD_FLOAT32;  // float32, float16 or bfloat16
  int64_t elements = 1;           // of each rank's input tensors, >= 1; divided: >= size
  int tensors = 1;                // >= 1
  int seed = 0;                   // of the inputs, the same on all ranks; >= 0
  int rank = 0, size = 1;         // size <= kMostRanks
};

// Some elements in a row.
struct Section {
  int64_t begin, count;
};

class Operation {
 public:
  // Allocates and fills the buffers.
  explicit Operation(const OperationSpec& spec);
  // REQUIRES: no Run() has failed, since the core may still use the buffers then.
  ~Operation();
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  // Enqueues all tensors and sleeps until all are done.  Empty, or why it failed.
  std::string Run();

  // Overwrites the outputs, so that only a new Run() can make them right.
  void Spoil();

  // Empty, or the first element of the outputs that is not as it must be, with both values.
  std::string FirstWrong() const;

 private:
  static void Done(void* self, int code, const char* message);

  const OperationSpec spec_;
  const size_t item_bytes_;
  // Of the input, what each part of the output is made of: in an allgather and an alltoall the
  // r-th part from rank r's input, else the only one.
  const Section section_;
  const int num_sections_;
  std::vector<int32_t> splits_;  // of an alltoall that cannot be divided evenly; else empty
  std::vector<std::string> names_;
  std::vector<std::vector<char>> inputs_;
  std::vector<std::vector<char>> outputs_;
  std::vector<hvd_tensor> tensors_;
  std::vector<hvd_request> requests_;
  std::atomic<int> pending_{0};
  std::atomic<bool> failed_{false};
  std::string failure_;  // written once, by who set failed_; read after the semaphore
  sem_t all_done_;
};

}  // namespace hvd_bench

#endif  // TESTS_BENCH_CC_OPERATION_H_
